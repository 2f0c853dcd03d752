"""Changed records: every check detects its violations."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.verification.verify import verify
from tests.support import small_scenario
from tests.verification.changed_runs import LIVELY, index, read, violated, write


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
    ("evaluations", "evaluated", {"round": 2}, {"trained_personal_accuracy": 0.123}),
    ("evaluations", "evaluated", {"round": 2}, {"updated_time_s": 0.123}),
    ("evaluations", "evaluated", {"round": 4}, {"trained_time_s": None}),
    ("summary", "run_finished", {}, {"status": "interrupted"}),
    ("summary", "run_finished", {}, {"used": 1}),
    ("form", "message_sent", {}, {"sender": 99}),
    ("form", "message_sent", {}, {"round": None, "true_round": None, "size_bytes": "many"}),
    ("form", "round_finished", {}, {"time_s": "late"}),
    ("form", "message_sent", {}, {"note": 1}),
    ("form", "message_lost", {}, {"event": "message_found"}),
    ("reasons", "message_lost", {"reason": "loss"}, {"reason": "partition"}),
    ("reasons", "message_lost", {"reason": "partition"}, {"reason": "loss"}),
    ("reasons", "message_stale", {"reason": "too old"}, {"reason": "mailbox full"}),
    ("reasons", "message_stale", {"reason": "too old"}, {"reason": "no longer a neighbour"}),
    ("reasons", "message_rejected", {}, {"reason": "no such round"}),
    ("reasons", "message_rejected", {}, {"reason": "a bad mood"}),
    ("counts", "message_sent", {"sender": 5}, {"size_bytes": 107.0}),
    ("weights", "message_stats", {}, {"weight": -0.5}),
    ("weights", "message_stats", {}, {"weight": 1.5}),
    ("weights", "message_stats", {}, {"message": 999}),
    ("weights", "message_stats", {}, {"sender": 9}),
    ("summary", "message_stats", {"weight": 0.5}, {"weight": 0.25}),
    ("summary", "estimate", {"clipped": False, "client": 0}, {"clipped": True}),
    ("estimates", "estimate", {"round": 2}, {"round": 3}),
    ("form", "round_finished", {}, {"clipped": True}),
    ("form", "message_used", {}, {"weight": 0.5}),
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


def test_decreasing_time_is_reported(run: Path) -> None:
    records = read(run)
    place = next(i for i, r in enumerate(records) if r["time_s"] < records[i + 1]["time_s"])
    records[place], records[place + 1] = records[place + 1], records[place]
    write(run, records)
    check = violated(run)["time"]
    assert (check.line, check.num_violations) == (place + 2, 1)


def test_unknown_event_is_reported(run: Path) -> None:
    records = read(run)
    records.insert(40, {"event": "message_read", "time_s": records[40]["time_s"], "message": 1})
    write(run, records)
    assert list(violated(run)) == ["form"]


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
    assert unchecked == {"conservation", "counts", "summary", "digest"}


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
    assert outcomes["scenario"] == outcomes["conservation"] == outcomes["complete"] == "ok"
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
