"""When estimates and message statistics may be written: by the next moment that needs the model."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.records.digest import MESSAGE_PREFIX, Digest
from tests.support import small_scenario
from tests.verification.test_tampering import LIVELY, Records, index, read, violated, write

Record = dict[str, Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = simulate(small_scenario(**LIVELY), tmp_path_factory.mktemp("lively")).folder
    assert folder is not None
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def is_needed_by(record: Record, estimate: Record) -> bool:
    """Whether a record requires the model of the estimate's round, or its client stops."""
    client = estimate["client"]
    match record["event"]:
        case "training_finished" | "final_model":
            return record["client"] == client
        case "evaluated":
            return (record["client"], record["round"]) == (client, estimate["round"])
        case "fault":
            return record["kind"] == "crash" and record["phase"] == "start" and client in record["clients"]
    return False


def deferred(records: Records, num_records_late: int = 0) -> Iterator[Record]:
    """Move every estimate and its message statistics to the last moment, or a number of records later."""
    held: dict[int, Records] = {}
    pending: list[tuple[int, Records]] = []
    for record in records:
        if record["event"] == "estimate":
            held[record["client"]] = [record]
            continue
        if record["event"] == "message_stats":
            held[record["recipient"]].append(record)
            continue
        due = [held.pop(client) for client, group in [*held.items()] if is_needed_by(record, group[0])]
        is_late = record["event"] == "fault" or num_records_late
        pending += [(num_records_late, group) for group in due]
        if not is_late:
            for _, group in pending:
                yield from ({**one, "time_s": record["time_s"]} for one in group)
            pending = []
        yield record
        if is_late:
            for left, group in [*pending]:
                if left <= 1:
                    pending.remove((left, group))
                    yield from ({**one, "time_s": record["time_s"]} for one in group)
            pending = [(left - 1, group) for left, group in pending]


def write_with_digest(run: Path, records: Records) -> None:
    write(run, records)
    digest = Digest()
    for line in (run / "events.jsonl").read_bytes().splitlines(keepends=True):
        if not line.startswith(MESSAGE_PREFIX):
            digest.add(line)
    path = run / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(path.read_text().replace(summary["digest"], digest.value.hex()))


def test_estimates_are_written_by_the_last_moment_that_needs_them(run: Path) -> None:
    records = read(run)
    assert [*deferred(records)] == records
    assert violated(run) == {}


def test_estimates_may_be_written_when_their_round_ends(run: Path) -> None:
    records = read(run)
    groups: dict[tuple[int, int], Records] = {}
    for record in records:
        if record["event"] == "estimate":
            of_round = groups[record["client"], record["round"]] = [record]
        elif record["event"] == "message_stats":
            of_round.append(record)
    moved: Records = []
    for position, record in enumerate(records):
        if record["event"] in ("estimate", "message_stats"):
            continue
        moved.append(record)
        if record["event"] in ("round_finished", "message_used"):
            if record["event"] == "round_finished":
                finished = record
            if records[position + 1]["event"] != "message_used":
                group = groups.get((finished["client"], finished["round"]), [])
                moved += [{**one, "time_s": finished["time_s"]} for one in group]
    assert len(moved) == len(records)
    write_with_digest(run, moved)
    assert violated(run).keys() <= {"summary"}, "sums over clients may differ in their last bits"


def test_estimate_after_the_moment_that_needs_it_is_reported(run: Path) -> None:
    write_with_digest(run, [*deferred(read(run), num_records_late=1)])
    found = violated(run)
    num_rounds = sum(record["event"] == "round_finished" for record in read(run))
    assert found["estimates"].num_violations >= 0.9 * num_rounds
    assert "lemma 3" in found
    assert "weights" in found


def moved_behind(run: Path, estimate: Record, is_target: Callable[[Record], bool]) -> None:
    """Move an estimate without its statistics behind the first later record that is a target."""
    records = read(run)
    place = records.index(estimate)
    target = next(i for i in range(place, len(records)) if is_target(records[i]))
    records.insert(target + 1, {**estimate, "time_s": records[target]["time_s"]})
    del records[place]
    write(run, records)


@pytest.mark.parametrize("event", ["training_finished", "evaluated", "final_model"])
def test_estimate_after_a_record_that_needs_the_model_is_reported(run: Path, event: str) -> None:
    records = read(run)
    last = event == "final_model"
    candidates = [record for record in records if record["event"] == "estimate" and record["round"] >= 2]
    estimate = candidates[-1] if last else next(r for r in candidates if r["round"] == 2 and r["client"] == 2)
    moved_behind(run, estimate, lambda r: r["event"] == event and r["client"] == estimate["client"])
    what = f"round {estimate['round']} of client {estimate['client']}"
    found = violated(run)["estimates"]
    assert (found.first, found.num_violations) == (f"{what} has no estimate before this record", 2)


def test_estimate_after_the_instant_of_a_crash_is_reported(tmp_path: Path) -> None:
    crash = {"name": "crash", "clients": [0, 1, 2, 3, 4], "at_s": 2.5, "recover_after_s": 1.0}
    scenario = small_scenario(**{**LIVELY, "faults": [crash]}, evaluation={"every": 100})
    run = simulate(scenario, tmp_path).folder
    assert run is not None
    records = read(run)
    place = index(records, "fault", kind="crash", phase="start")
    later = next(i for i in range(place, len(records)) if records[i]["time_s"] > 2.5)
    start = max(i for i in range(place, later) if records[i]["event"] == "estimate")
    end = next(i for i in range(start + 1, later + 1) if records[i]["event"] != "message_stats")
    late = [{**record, "time_s": records[later]["time_s"]} for record in records[start:end]]
    write(run, [*records[:start], *records[end : later + 1], *late, *records[later + 1 :]])
    assert "is too late: the client stopped at 2.5 s" in str(violated(run)["estimates"].first)


def test_second_estimate_is_reported(run: Path) -> None:
    records = read(run)
    place = index(records, "estimate", round=2)
    records.insert(place + 1, records[place])
    write(run, records)
    assert "is not the first" in str(violated(run)["estimates"].first)


def test_estimate_of_a_round_that_was_not_finished_is_reported(run: Path) -> None:
    records = read(run)
    place = index(records, "estimate", round=2)
    records[place]["round"] = 5
    write(run, records)
    what = f"the estimate of round 5 of client {records[place]['client']}"
    assert violated(run)["estimates"].first == f"{what} does not follow the end of that round"


def test_message_stats_without_a_used_message_are_reported(run: Path) -> None:
    records = read(run)
    place = index(records, "message_used")
    number = records.pop(place)["message"]
    write(run, records)
    assert f"message {number}" in str(violated(run)["weights"].first)


def test_used_message_without_stats_is_reported(run: Path) -> None:
    records = read(run)
    number = records.pop(index(records, "message_stats"))["message"]
    write(run, records)
    assert f"message {number}" in str(violated(run)["weights"].first)


def test_message_stats_apart_from_their_estimate_are_reported(run: Path) -> None:
    records = read(run)
    place = index(records, "message_stats")
    stats = records.pop(place)
    later = next(i for i in range(place, len(records)) if records[i]["event"] == "estimate" and i > place + 5)
    records.insert(later + 1, {**stats, "time_s": records[later]["time_s"]})
    write(run, records)
    assert "weights" in violated(run)


def test_message_stats_without_telemetry_are_reported(tmp_path: Path, original: Path) -> None:
    run = simulate(small_scenario(**LIVELY, output={"telemetry": False}), tmp_path).folder
    assert run is not None
    assert violated(run) == {}
    records, others = read(run), read(original)
    assert all(record["event"] != "message_stats" for record in records)
    place = index(records, "estimate")
    records.insert(place + 1, {**others[index(others, "message_stats")], "time_s": records[place]["time_s"]})
    write(run, records)
    assert "unknown event 'message_stats'" in str(violated(run)["form"].first)


def test_method_without_diagnostics_needs_no_estimates(tmp_path: Path) -> None:
    run = simulate(small_scenario(method="local"), tmp_path).folder
    assert run is not None
    assert all(record["event"] != "estimate" for record in read(run))
    assert violated(run) == {}
