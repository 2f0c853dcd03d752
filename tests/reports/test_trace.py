"""Traces are read as Perfetto's importer reads them: sorted by time, one stack of open slices per track."""

import json
from collections import Counter, defaultdict
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.reports.trace import FAULT_TRACK, FIRST_CLIENT_TRACK, write_trace
from tests.support import small_scenario

EVERYTHING = Path(__file__).parents[2] / "scenarios" / "stress" / "everything.toml"


class Imported:
    """A trace as a viewer imports it: slices with their parents, and the start and end of every arrow."""

    def __init__(self, text: bytes) -> None:
        self.events = json.loads(text)["traceEvents"]
        self.slices = [event for event in self.events if event["ph"] == "X"]
        self.instants = [event for event in self.events if event["ph"] == "i"]
        self.arrows: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        """The slices in which an arrow starts, continues and ends, in chronological order, by id and name."""
        self.phases: dict[tuple[int, str], str] = defaultdict(str)
        stacks: dict[int, list[dict[str, Any]]] = defaultdict(list)
        timed = [event for event in self.events if event["ph"] in "Xistf"]
        for event in sorted(timed, key=lambda event: event["ts"]):
            stack = stacks[event["tid"]]
            if event["ph"] in "Xi":
                self._push(stack, event)
            else:
                self.arrows[event["id"], event["name"]].append(stack[-1])
                self.phases[event["id"], event["name"]] += event["ph"]
                assert stack[-1]["ts"] == event["ts"], "an arrow is drawn from and to the start of its slice"

    def _push(self, stack: list[dict[str, Any]], event: dict[str, Any]) -> None:
        start, duration = event["ts"], event.get("dur", 0)
        while stack:
            top_duration = stack[-1].get("dur", 0)
            end = stack[-1]["ts"] + top_duration
            if end > start or (end == start and top_duration == duration == 0):
                assert start + duration <= end, f"{event} starts within {stack[-1]} but ends after it"
                break
            stack.pop()
        stack.append(event)
        assert len(stack) < 100

    def count(self, name: str) -> int:
        return sum(event["name"] == name for event in [*self.slices, *self.instants])


def traced(scenario: Scenario, folder: Path) -> tuple[Imported, list[dict[str, Any]]]:
    path = simulate(scenario, folder).folder
    assert path is not None
    lines = (path / "events.jsonl").read_bytes().splitlines(keepends=True)
    file = BytesIO()
    write_trace(lambda: lines, json.loads((path / "topology.json").read_text()), "a run", file)
    return Imported(file.getvalue()), [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "scenario",
    [
        small_scenario(),
        small_scenario(
            timing={"compute": {"name": "uniform", "low_s": 0.5, "high_s": 2.0}, "wait": "none"},
            adversary={"attack": "noise", "fraction": 0.34, "timing": {"name": "flood", "copies": 3}},
        ),
        Scenario.load(EVERYTHING, ["rounds=6"]),
    ],
    ids=["plain", "asynchronous", "everything"],
)
def test_trace_has_the_events_of_the_records(scenario: Scenario, tmp_path: Path) -> None:
    trace, records = traced(scenario, tmp_path)
    num = Counter(record["event"] for record in records)
    cut_off = sum("ended_by" in event["args"] for event in trace.slices if event["name"] == "training")
    assert trace.count("training") == num["training_finished"] + cut_off
    assert num["training_started"] >= num["training_finished"] + cut_off  # some are unfinished at the end
    updates = [event for event in trace.slices if event["name"] == "update"]
    assert len(updates) == num["round_finished"]
    faults = [event for event in trace.instants if event["tid"] == FAULT_TRACK]
    assert len(faults) == num["fault"]
    for outcome in ("lost", "stale", "duplicate", "rejected"):
        assert trace.count(outcome) == num[f"message_{outcome}"]
    assert trace.count("estimate") == num["estimate"]
    counters = Counter(event["name"] for event in trace.events if event["ph"] == "C")
    assert counters.total() - counters["honest mean"] == num["evaluated"]
    phases = Counter(trace.phases.values())
    assert phases == Counter(
        {"stf": num["message_used"], "sf": num["message_delivered"] - num["message_used"]}
    ) - Counter({"sf": 0})


def test_arrows_lead_from_send_through_receive_to_update_on_the_right_tracks(tmp_path: Path) -> None:
    trace, records = traced(small_scenario(adversary={"attack": "noise", "fraction": 0.34}), tmp_path)
    byzantine = records[0]["byzantine"]
    sent = {record["message"]: record for record in records if record["event"] == "message_sent"}
    used = {record["message"]: record for record in records if record["event"] == "message_used"}
    assert {number for number, _ in trace.arrows} == set(sent)
    for (number, name), slices in trace.arrows.items():
        message = sent[number]
        assert name == ("Byzantine message" if message["sender"] in byzantine else "message")
        tracks = [message["sender"], message["recipient"], message["recipient"]]
        assert [event["tid"] - FIRST_CLIENT_TRACK for event in slices] == tracks[: len(slices)]
        assert [event["name"] for event in slices] == ["send", "receive", "update"][: len(slices)]
        assert slices[0]["ts"] == round(1e6 * message["time_s"])
        assert slices[-1]["args"].get("round", used[number]["round"]) == used[number]["round"]


def test_tracks_are_named_honest_or_byzantine_in_the_order_of_ids(tmp_path: Path) -> None:
    trace, _ = traced(small_scenario(clients={"count": 11}, adversary={"ids": [3]}), tmp_path)
    names = {event["tid"]: event["args"]["name"] for event in trace.events if event["name"] == "thread_name"}
    clients = [name for track, name in sorted(names.items()) if track >= FIRST_CLIENT_TRACK]
    assert clients == sorted(clients)
    assert (clients[3], clients[10]) == ("client 03 Byzantine", "client 10 honest")
    assert len({(event["tid"]) for event in trace.events if event["name"] == "thread_name"}) == len(names)


def test_slices_of_a_client_that_crashes_end_there_and_it_is_down_until_it_recovers(tmp_path: Path) -> None:
    crash = {"name": "crash", "clients": [2], "at_s": 1.5, "recover_after_s": 2.0}
    wait = {"wait": {"name": "all", "timeout_s": 1.0}}
    trace, _ = traced(small_scenario(faults=[crash], timing=wait), tmp_path)
    own = [event for event in trace.slices if event["tid"] == FIRST_CLIENT_TRACK + 2]
    [cut] = [event for event in own if "ended_by" in event["args"]]
    [down] = [event for event in own if event["name"] == "down"]
    assert cut["ts"] + cut["dur"] == down["ts"] == 1_500_000
    assert down["dur"] == 2_000_000


def test_honest_mean_is_that_of_the_summary(tmp_path: Path) -> None:
    scenario = small_scenario(adversary={"attack": "noise", "fraction": 0.34})
    result = simulate(scenario)
    trace, _ = traced(scenario, tmp_path)
    means = [event for event in trace.events if event["ph"] == "C" and event["name"] == "honest mean"]
    mean = result.summary["accuracy"]["honest"]["personal"]["mean"]
    assert means[-1]["args"]["accuracy"] == pytest.approx(mean)
