"""Changed records: every check detects its violations."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rdpfl_sim import simulate
from rdpfl_sim.records.json_file import encode_json
from rdpfl_sim.verification.check import Check
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.messages import STALE, DroppedMessage
from rdpfl_sim.verification.verify import verify
from rdpfl_sim.world.faults.fault import End, Fault
from tests.support import small_scenario
from tests.world.faults.test_fault import EXAMPLES

Records = list[dict[str, Any]]

LIVELY = {
    "rounds": 6,
    "topology": "ring",
    "method": {"name": "rdpfl", "lambda": 0.3},
    "adversary": {"attack": "nan", "timing": {"name": "flood", "copies": 3}, "ids": [5]},
    "network": {
        "latency": "exponential",
        "loss": {"name": "bernoulli", "probability": 0.1},
        "duplication": 0.1,
    },
    "timing": {
        "wait": {"name": "quorum", "fraction": 0.5, "timeout_s": 0.5},
        "staleness": {"name": "keep", "max_age": 2},
        "compute": "lognormal",
    },
    "faults": [
        {"name": "crash", "clients": [1], "at_s": 1.5, "recover_after_s": 1.0},
        {"name": "partition", "sides": [[0, 1, 2]], "from_s": 2.0, "until_s": 3.0},
        {"name": "link_outage", "links": [[3, 4]], "from_s": 1.0, "until_s": 2.0},
        {"name": "slow_down", "clients": [0], "factor": 2.0, "from_s": 0.5, "until_s": 1.5},
    ],
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = simulate(small_scenario(**LIVELY), tmp_path_factory.mktemp("lively")).folder
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every client waits for all neighbours."""
    folder = simulate(small_scenario(), tmp_path_factory.mktemp("patient")).folder
    assert folder is not None
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def read(run: Path) -> Records:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def write(run: Path, records: Records) -> None:
    lines = [orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records]
    (run / "events.jsonl").write_bytes(b"".join(lines))


def index(records: Records, event: str, **fields: Any) -> int:
    """Return the first record of a kind with these values."""
    wanted = {"event": event, **fields}
    return next(i for i, r in enumerate(records) if all(r.get(key) == wanted[key] for key in wanted))


def violated(run: Path) -> dict[str, Check]:
    return {check.name: check for check in verify(run) if check.outcome == "violated"}


def change_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_unchanged_run_passes_every_check(run: Path) -> None:
    checks = verify(run)
    assert [check.as_dict() for check in checks if check.outcome != "ok"] == []
    assert [check.name for check in checks if check.num_items == 0] == []


DROPPED = {
    "training_started": "rounds",
    "training_finished": "rounds",
    "round_finished": "rounds",
    "evaluated": "evaluations",
    "estimate": "lemma 3",
    "message_sent": "numbering",
    "message_copied": "numbering",
    "message_delivered": "outcomes",
    "message_lost": "counts",
    "message_used": "use",
    "message_stats": "weights",
    "message_rejected": "counts",
    "final_model": "digest",
    "run_started": "complete",
    "run_finished": "complete",
}


@pytest.mark.parametrize(("event", "name"), DROPPED.items())
def test_deleted_record_is_reported(run: Path, event: str, name: str) -> None:
    records = read(run)
    del records[index(records, event)]
    write(run, records)
    assert name in violated(run)


DOUBLED = {
    "training_started": "rounds",
    "training_finished": "rounds",
    "round_finished": "rounds",
    "evaluated": "evaluations",
    "estimate": "estimates",
    "fault": "digest",
    "message_sent": "numbering",
    "message_copied": "numbering",
    "message_delivered": "outcomes",
    "message_lost": "outcomes",
    "message_used": "outcomes",
    "message_stats": "weights",
    "message_rejected": "outcomes",
}


@pytest.mark.parametrize(("event", "name"), DOUBLED.items())
def test_duplicated_record_is_reported_at_its_line(run: Path, event: str, name: str) -> None:
    records = read(run)
    place = index(records, event)
    records.insert(place, records[place])
    write(run, records)
    check = violated(run)[name]
    assert check.line == (None if name == "digest" else place + 2)


CHANGED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("digest", "training_finished", {}, {"loss": 0.123}),
    ("digest", "final_model", {"client": 3}, {"blake2b": "0" * 32}),
    ("scenario", "run_started", {}, {"seed": 2}),
    ("scenario", "run_started", {}, {"schema": 3}),
    ("scenario", "run_started", {}, {"byzantine": [4]}),
    ("rounds", "training_started", {"round": 3}, {"duration_s": 0.123}),
    ("rounds", "training_started", {"round": 3}, {"round": 4}),
    ("outcomes", "message_delivered", {}, {"recipient": 99}),
    ("outcomes", "message_used", {}, {"sender": 3, "recipient": 4, "round": 9}),
    ("causality", "message_delivered", {}, {"delay_s": 0.001}),
    ("causality", "message_delivered", {}, {"delay_s": -1.0}),
    ("links", "message_sent", {"sender": 0}, {"recipient": 3}),
    ("stamps", "message_sent", {"sender": 0}, {"round": 2}),
    ("stamps", "message_sent", {"sender": 5}, {"true_round": 2}),
    ("ages", "message_used", {"round": 2}, {"age": -1}),
    ("use", "round_finished", {"num_used": 1}, {"num_used": 2}),
    ("use", "round_finished", {"num_used": 1}, {"max_age": 2}),
    ("lemma 3", "estimate", {"round": 2}, {"d_norm": 10.1}),
    ("lemma 3", "estimate", {"round": 2}, {"d_norm": None}),
    ("evaluations", "evaluated", {"round": 2}, {"personal_accuracy": 0.123}),
    ("summary", "run_finished", {}, {"status": "interrupted"}),
    ("summary", "run_finished", {}, {"used": 1}),
    ("form", "message_sent", {}, {"sender": 99}),
    ("form", "message_sent", {}, {"round": None, "true_round": None, "size_bytes": "many"}),
    ("form", "round_finished", {}, {"time_s": "late"}),
    ("form", "message_sent", {}, {"note": 1}),
    ("form", "message_lost", {}, {"event": "message_found"}),
    ("form", "message_delivered", {"recipient": 1}, {"recipient": True}),
    ("reasons", "message_lost", {"reason": "loss"}, {"reason": "partition"}),
    ("reasons", "message_lost", {"reason": "partition"}, {"reason": "loss"}),
    ("reasons", "message_stale", {"reason": "too old"}, {"reason": "mailbox full"}),
    ("reasons", "message_stale", {"reason": "too old"}, {"reason": "no longer a neighbour"}),
    ("reasons", "message_rejected", {}, {"reason": "no such round"}),
    ("reasons", "message_rejected", {}, {"reason": "a bad mood"}),
    ("sizes", "message_sent", {"sender": 0}, {"size_bytes": 107.0}),
    ("counts", "message_sent", {"sender": 5}, {"size_bytes": 107.0}),
    ("weights", "message_stats", {}, {"weight": -0.5}),
    ("weights", "message_stats", {}, {"weight": 1.5}),
    ("weights", "message_stats", {}, {"distance_to_own": -1.0}),
    ("weights", "message_stats", {}, {"message": 999}),
    ("weights", "message_stats", {}, {"sender": 9}),
    ("summary", "message_stats", {"weight": 0.5}, {"weight": 0.25}),
    ("summary", "estimate", {"clipped": False}, {"clipped": True}),
    ("estimates", "estimate", {"round": 2}, {"round": 3}),
    ("estimates", "estimate", {"round": 2}, {"another": 1.0}),
    ("form", "estimate", {"round": 2}, {"tau": "large"}),
    ("form", "round_finished", {}, {"clipped": True}),
    ("form", "message_used", {}, {"weight": 0.5}),
    ("deployment", "fault", {"kind": "crash", "phase": "start"}, {"clients": [2]}),
    ("faults", "fault", {"kind": "crash", "phase": "end"}, {"clients": [1, 2]}),
    ("faults", "fault", {"kind": "partition", "phase": "end"}, {"sides": [[0], [1, 2, 3, 4, 5]]}),
    ("faults", "fault", {"kind": "link_outage", "phase": "end"}, {"links": [[0, 1]]}),
    ("faults", "fault", {"kind": "slow_down", "phase": "end"}, {"factor": 3.0}),
    ("faults", "fault", {"kind": "slow_down", "phase": "start"}, {"kind": "meteor"}),
    ("faults", "fault", {"kind": "slow_down", "phase": "start"}, {"phase": "middle"}),
]


@pytest.mark.parametrize(("name", "event", "where", "values"), CHANGED)
def test_changed_value_is_reported(
    run: Path, name: str, event: str, where: dict[str, Any], values: dict[str, Any]
) -> None:
    records = read(run)
    place = index(records, event, **where)
    records[place] |= values
    write(run, records)
    check = violated(run)[name]
    assert check.first
    assert check.line is None or check.line >= place + 1


@pytest.mark.parametrize(
    ("others", "reason"), [([], "too old"), ([3], "too old"), ([3, 5], "newer message chosen")]
)
def test_message_is_too_old_only_if_no_newer_one_of_its_sender_can_be_used(
    others: list[int], reason: str
) -> None:
    drop = DroppedMessage(
        stamp=2,
        round=6,
        is_neighbour=True,
        others=others,
        last_used=1,
        has_restarted=False,
        last_round=9,
        max_age=2,
        capacity=8,
    )
    reasons = [name for name in ("too old", "newer message chosen") if STALE[name](drop)]
    assert reasons == [reason]


def test_decreasing_time_is_reported(run: Path) -> None:
    records = read(run)
    place = next(i for i, r in enumerate(records) if r["time_s"] < records[i + 1]["time_s"])
    records[place], records[place + 1] = records[place + 1], records[place]
    write(run, records)
    check = violated(run)["time"]
    assert (check.line, check.num_violations) == (place + 2, 1)


def test_used_messages_in_another_order_are_reported(run: Path) -> None:
    records = read(run)
    place = index(records, "round_finished", num_used=2)
    records[place + 1], records[place + 2] = records[place + 2], records[place + 1]
    write(run, records)
    assert violated(run)["use"].line == place + 2


def test_delivery_before_sending_is_reported(run: Path) -> None:
    records = read(run)
    sent = index(records, "message_sent", sender=2)
    arrived = index(records, "message_delivered", message=records[sent]["message"])
    record = records.pop(arrived)
    records.insert(sent, {**record, "time_s": records[sent]["time_s"]})
    write(run, records)
    assert violated(run)["outcomes"].line == sent + 1


def test_use_of_an_older_message_than_the_preferred_one_is_reported(run: Path) -> None:
    records = read(run)
    place = index(records, "message_stale", reason="newer message chosen")
    dropped = records[place]
    pair = {key: dropped[key] for key in ("sender", "recipient")}
    later = place + index(records[place:], "message_used", **pair)
    chosen = records[later]
    age = chosen["age"] + chosen["round"] - dropped["round"]
    records[later] = {**chosen, "message": dropped["message"], "round": dropped["round"], "age": age}
    del records[place]
    write(run, records)
    assert str(violated(run)["use"].first).endswith(f"instead of {chosen['round']}")


def test_activity_of_a_stopped_client_is_reported(run: Path) -> None:
    records = read(run)
    crash = records.pop(index(records, "fault", kind="crash", phase="start"))
    records.insert(index(records, "training_started"), {**crash, "time_s": 0.0})
    write(run, records)
    found = violated(run)
    assert "is down" in str(found["faults"].first)
    assert "is down" in str(found["links"].first)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            {"kind": "partition", "phase": "start", "sides": [[0, 1, 2, 3, 4], [5]]},
            "different sides of a partition",
        ),
        ({"kind": "link_outage", "phase": "start", "links": [[0, 1], [5, 0], [0, 5]]}, "the link from"),
    ],
)
def test_delivery_across_a_partition_or_a_link_that_is_down_is_reported(
    run: Path, fault: dict[str, Any], words: str
) -> None:
    records = read(run)
    first = index(records, "training_started")
    records.insert(first, {"event": "fault", "time_s": 0.0, "fault": 9, **fault})
    write(run, records)
    assert words in str(violated(run)["links"].first)


def test_message_to_a_former_neighbour_is_reported(run: Path) -> None:
    records = read(run)
    rewire = {
        "event": "fault",
        "time_s": 0.0,
        "fault": 9,
        "kind": "topology_change",
        "phase": "start",
        "links": [[0, 3]],
    }
    records.insert(index(records, "training_started"), rewire)
    write(run, records)
    assert "is not a neighbour of" in str(violated(run)["links"].first)


def test_round_that_ends_before_enough_messages_arrived_is_reported(patient: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(patient, tmp_path / "run"))
    records = read(run)
    place = index(records, "round_finished", round=2)
    number = records[place + 1]["message"]
    records[place]["num_used"] -= 1
    arrived = index(records, "message_delivered", message=number)
    removed = arrived, place + 1, index(records, "message_stats", message=number)
    write(run, [record for i, record in enumerate(records) if i not in removed])
    found = violated(run)
    assert found["waiting"].line == place
    assert "use" not in found


def test_round_that_ends_after_the_timeout_is_reported(run: Path) -> None:
    path = run / "scenario.toml"
    path.write_text(path.read_text().replace("timeout_s = 0.5", "timeout_s = 0.01"))
    assert {"waiting", "scenario"} <= violated(run).keys()


def test_changed_scenario_is_reported(run: Path) -> None:
    path = run / "scenario.toml"
    text = path.read_text()
    path.write_text(text.replace("learning_rate = 0.01", "learning_rate = 0.02"))
    assert path.read_text() != text
    assert list(violated(run)) == ["scenario"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("accounts", lambda summary: summary["messages"].update(sent=1)),
        ("accounts", lambda summary: summary["messages"].update(left_over=-1)),
        ("counts", lambda summary: summary["messages"].update(reordered=-1)),
        ("counts", lambda summary: summary["messages"].update(bytes=1)),
        ("summary", lambda summary: summary.update(simulated_s=1.0)),
        ("summary", lambda summary: summary["accuracy"]["honest"]["personal"].update(mean=0.99)),
        ("summary", lambda summary: summary.update(rounds_done=[6, 6], num_faults=0)),
        ("digest", lambda summary: summary.update(digest="0" * 64)),
        (
            "complete",
            lambda summary: (summary.clear(), summary.update(schema=2, status="failed", error="full disk")),
        ),
    ],
)
def test_changed_summary_is_reported(run: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    change_json(run / "summary.json", change)
    assert name in violated(run)


def test_changed_metrics_are_reported(run: Path) -> None:
    path = run / "metrics.csv"
    head, *rows = path.read_text().splitlines(keepends=True)
    for wrong in ([*rows[:4], *rows[5:]], [*rows, rows[-1]], rows[:-1], [rows[1], rows[0], *rows[2:]]):
        path.write_text("".join([head, *wrong]))
        assert list(violated(run)) == ["evaluations"]


def test_evaluation_of_an_unfinished_round_is_reported(run: Path) -> None:
    records = read(run)
    records[index(records, "evaluated", round=2)]["round"] = 3
    write(run, records)
    path = run / "metrics.csv"
    head, *rows = path.read_text().splitlines()
    place = [row.split(",")[3] for row in rows].index("2")
    rows[place] = ",".join("3" if i == 3 else cell for i, cell in enumerate(rows[place].split(",")))
    path.write_text("\n".join([head, *rows]) + "\n")
    assert "the last finished round of client 5 is 2" in str(violated(run)["evaluations"].first)


def test_changed_means_in_the_metrics_are_reported(run: Path) -> None:
    path = run / "metrics.csv"
    head, *rows = path.read_text().splitlines()
    cells = rows[-1].split(",")
    for column in ("used_per_round", "mean_age", "clipped", "bounded", "neighbour_share"):
        changed = list(cells)
        changed[head.split(",").index(column)] = "0.123"
        path.write_text("\n".join([head, *rows[:-1], ",".join(changed)]) + "\n")
        assert f"metrics.csv has {column} = '0.123'" in str(violated(run)["evaluations"].first)


def test_truncated_records_are_reported(run: Path) -> None:
    path = run / "events.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    found = violated(run)
    assert {"form", "complete", "digest", "counts"} <= found.keys()


def test_run_without_a_summary_is_incomplete_and_its_records_are_checked(run: Path) -> None:
    (run / "summary.json").unlink()
    assert list(violated(run)) == ["complete"]
    unchecked = {check.name for check in verify(run) if check.outcome == "not checked"}
    assert unchecked == {"accounts", "counts", "summary", "digest"}


def test_sample_of_messages_is_checked(tmp_path: Path) -> None:
    run = simulate(small_scenario(**LIVELY, output={"message_events": 0.5}), tmp_path).folder
    assert run is not None
    checks = {check.name: check for check in verify(run)}
    assert {name for name, check in checks.items() if check.outcome != "ok"} == {
        *("counts", "use", "waiting", "reasons"),
    }
    assert "only some messages are recorded" in str(checks["use"].unchecked)
    records = read(run)
    del records[
        index(records, "message_sent", message=records[index(records, "message_delivered")]["message"])
    ]
    write(run, records)
    assert {"numbering", "outcomes"} <= violated(run).keys()


@pytest.mark.parametrize("output", [{"message_events": 0.0}, {"events": False}])
def test_checks_that_need_unrecorded_messages_are_not_made(tmp_path: Path, output: dict[str, Any]) -> None:
    run = simulate(small_scenario(**LIVELY, output=output), tmp_path).folder
    assert run is not None
    outcomes = {check.name: check.outcome for check in verify(run)}
    assert set(outcomes.values()) == {"ok", "not checked"}
    assert outcomes["scenario"] == outcomes["accounts"] == outcomes["complete"] == "ok"
    assert (outcomes["digest"] == "ok") == ("events" not in output)
    assert outcomes["outcomes"] == outcomes["use"] == "not checked"


def test_deleted_events_file_is_reported(run: Path) -> None:
    (run / "events.jsonl").unlink()
    checks = {check.name: check for check in verify(run)}
    assert checks["complete"].first == "there are no records although output.events is true"
    assert checks["digest"].outcome == checks["rounds"].outcome == "not checked"
    assert checks["scenario"].outcome == checks["summary"].outcome == "ok"


def test_records_of_a_run_without_events_are_reported(tmp_path: Path, original: Path) -> None:
    run = simulate(small_scenario(**LIVELY, output={"events": False}), tmp_path).folder
    assert run is not None
    shutil.copy(original / "events.jsonl", run)
    assert list(violated(run)) == ["complete"]


def test_accuracy_is_checked_against_the_metrics_without_records(tmp_path: Path) -> None:
    run = simulate(small_scenario(**LIVELY, output={"events": False}), tmp_path).folder
    assert run is not None
    path = run / "summary.json"
    path.write_bytes(path.read_bytes().replace(b'"mean": 0.', b'"mean": 1.', 1))
    assert str(violated(run)["summary"].first).startswith("accuracy.honest.personal.mean is 1.")


@pytest.mark.parametrize("max_time_s", [0.1, 3.5])
def test_theory_of_a_run_out_of_time_has_no_violations(tmp_path: Path, max_time_s: float) -> None:
    scenario = small_scenario(evaluation={"every": 2, "theory": True}, timing={"max_time_s": max_time_s})
    run = simulate(scenario, tmp_path).folder
    assert run is not None
    assert violated(run) == {}


def test_unknown_event_is_reported(run: Path) -> None:
    records = read(run)
    records.insert(40, {"event": "message_read", "time_s": records[40]["time_s"], "message": 1})
    write(run, records)
    assert list(violated(run)) == ["form"]


def test_deleted_fault_is_reported(run: Path) -> None:
    records = read(run)
    del records[index(records, "fault", kind="slow_down", phase="end")]
    write(run, records)
    assert violated(run)["deployment"].first


def test_lemma_3_is_checked_for_rdpfl_only(tmp_path: Path) -> None:
    run = simulate(small_scenario(method="local"), tmp_path).folder
    assert run is not None
    checks = {check.name: check for check in verify(run)}
    assert checks["lemma 3"].unchecked == "applies to R-DPFL only; the method is local"
    assert checks["waiting"].outcome == "ok"


def test_summary_with_fewer_statistics_is_valid(run: Path) -> None:
    path = run / "summary.json"
    summary = json.loads(path.read_text())
    for group in summary["accuracy"].values():
        for statistics in filter(None, group.values()):
            del statistics["p10"]
    path.write_bytes(encode_json(summary))
    assert violated(run) == {}


def test_unknown_statistic_in_a_summary_is_reported(run: Path) -> None:
    path = run / "summary.json"
    summary = json.loads(path.read_text())
    summary["accuracy"]["honest"]["personal"]["best"] = 1.0
    path.write_bytes(encode_json(summary))
    assert "accuracy.honest.personal.best" in str(violated(run)["summary"].first)


ENDS = {
    "Partition": "the condition 'partitioned' of the network ends, but has not started",
    "LinkOutage": "the condition 'down' of the link from 0 to 1 ends, but has not started",
    "Crash": "the condition 'down' of client 1 ends, but has not started",
    "Absence": "the condition 'not yet joined' of client 2 ends, but has not started",
    "SlowDown": "the condition 'slow' of client 0 ends, but has not started",
}


@pytest.mark.parametrize("fault", [f for f in EXAMPLES if f.ends()], ids=lambda fault: type(fault).__name__)
def test_end_of_a_fault_that_has_not_started_is_a_violation(fault: Fault) -> None:
    checks = ClientChecks(3, [(0, 1), (1, 2)], num_rounds=4)
    record: Any = {"time_s": 1.0, **orjson.loads(orjson.dumps(End(fault).fields))}
    checks.fault(record, 1)
    assert checks.faults.first == ENDS[type(fault).__name__]
