"""Every invariant: one change of the records, of metrics.csv or of summary.json that violates it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.verification.check import INVARIANTS
from rdpfl_sim.verification.verify import verify
from tests.support import small_scenario
from tests.verification.changed_runs import LIVELY, Records, change_json, index, read, violated, write

Change = Callable[[Path], None]


def changed(event: str, where: dict[str, Any], /, **values: Any) -> Change:
    """Change the first record of a kind with these values."""

    def change(run: Path) -> None:
        records = read(run)
        records[index(records, event, **where)] |= values
        write(run, records)

    return change


def deleted(event: str, **where: Any) -> Change:
    """Delete the first record of a kind with these values."""

    def change(run: Path) -> None:
        records = read(run)
        del records[index(records, event, **where)]
        write(run, records)

    return change


def doubled(event: str, **where: Any) -> Change:
    """Repeat the first record of a kind with these values."""

    def change(run: Path) -> None:
        records = read(run)
        place = index(records, event, **where)
        records.insert(place, records[place])
        write(run, records)

    return change


def swapped(run: Path) -> None:
    """Swap two records of different times."""
    records = read(run)
    place = next(i for i, r in enumerate(records) if r["time_s"] < records[i + 1]["time_s"])
    records[place], records[place + 1] = records[place + 1], records[place]
    write(run, records)


def in_summary(section: str, **values: Any) -> Change:
    """Change values in a section of summary.json."""
    return lambda run: change_json(run / "summary.json", lambda summary: summary[section].update(values))


VIOLATIONS: list[tuple[str, Change, str]] = [
    ("form", changed("round_finished", {}, time_s="late"), "round_finished: time_s is 'late'"),
    ("form", changed("message_sent", {}, sender=99), "message_sent: sender is 99; there are 6 clients"),
    ("form", changed("message_lost", {}, event="message_found"), "unknown record 'message_found'"),
    ("time", swapped, " s, the previous record is at "),
    ("complete", deleted("run_started"), "not run_started, but evaluated"),
    ("complete", deleted("run_finished"), "not run_finished, but final_model"),
    ("scenario", changed("run_started", {}, seed=2), "the first record has the seed 2, the scenario 1"),
    ("digest", changed("training_finished", {}, loss=0.123), "the records have the digest "),
    ("conservation", in_summary("messages", sent=1), "sent 1, delivered "),
    ("conservation", in_summary("messages", left_over=-1), "left_over -1"),
    ("counts", in_summary("messages", reordered=-1), "messages.reordered is -1, according to the records "),
    ("counts", deleted("message_lost"), "messages.lost is "),
    ("counts", changed("message_sent", {"sender": 5}, size_bytes=107.0), "messages.bytes is "),
    ("summary", changed("run_finished", {}, used=1), "messages.used is "),
    ("summary", changed("message_stats", {"weight": 0.5}, weight=0.25), "telemetry."),
    ("summary", changed("estimate", {"clipped": False, "client": 0}, clipped=True), "clipped is "),
    ("rounds", changed("training_started", {"round": 3}, round=4), "is in round 3, not 4"),
    ("rounds", changed("training_started", {"round": 3}, duration_s=0.1), "should end at "),
    ("rounds", deleted("training_finished"), "unexpected record round_finished of round 1: client "),
    ("faults", deleted("fault", kind="crash", phase="start"), "the condition 'down' of client 1 ends, but"),
    ("faults", changed("fault", {"kind": "slow_down"}, kind="meteor"), "unknown kind of fault 'meteor'"),
    ("outcomes", deleted("message_sent"), " is not in transit"),
    ("outcomes", doubled("message_sent"), " is sent, but exists already"),
    ("outcomes", doubled("message_used"), " is used, but is not in a mailbox"),
    ("outcomes", changed("message_delivered", {}, round=3), ", of round 1"),
    ("causality", changed("message_delivered", {}, delay_s=-1.0), "its delay is not -1.0 s"),
    ("links", changed("message_sent", {"sender": 0}, recipient=3), ": 3 is not a neighbour of 0"),
    ("stamps", changed("message_sent", {"sender": 0}, round=2), "honest client 0 stamped a message with"),
    ("stamps", changed("message_sent", {"sender": 5}, true_round=2), "client 5 is in round 1, not 2"),
    ("reasons", changed("message_lost", {"reason": "loss"}, reason="partition"), "must be: loss"),
    ("reasons", changed("message_lost", {"reason": "partition"}, reason="loss"), "must be: partition"),
    ("reasons", changed("message_stale", {"reason": "too old"}, reason="mailbox full"), ": too old"),
    ("reasons", changed("message_rejected", {}, reason="no such round"), ": not finite or "),
    ("use", changed("round_finished", {"num_used": 1}, num_used=2), "contains messages from 1 neighbours"),
    ("use", deleted("message_used"), " has not used the message from client "),
    ("ages", changed("message_used", {"round": 2}, age=-1), "recorded age -1 is used in round "),
    ("weights", changed("message_stats", {}, weight=-0.5), "has weight -0.5"),
    ("weights", changed("message_stats", {}, weight=1.5), "the sum in round 1 of client "),
    ("weights", deleted("message_stats"), ", which has no message_stats"),
    ("weights", doubled("message_stats"), " is not the next one that the last round used"),
    ("estimates", changed("estimate", {"round": 2}, round=3), "the estimate of round 3 of client "),
    ("estimates", doubled("estimate"), " has a second estimate"),
    ("lemma 3", changed("estimate", {"round": 2}, d_norm=10.1), "|d| = 10.1 in round 2 of client "),
    ("lemma 3", changed("estimate", {"round": 2}, d_norm=None), "|d| = None in round 2 of client "),
    ("lemma 3", deleted("estimate"), " has no estimate"),
    (
        "evaluations",
        changed("evaluated", {"round": 2}, trained_personal_accuracy=0.1),
        "trained_personal_accuracy is ",
    ),
    ("evaluations", changed("evaluated", {"round": 2}, updated_time_s=0.1), "the updated model of client "),
    ("evaluations", changed("evaluated", {"round": 4}, trained_time_s=None), "the trained model of client "),
    ("evaluations", deleted("evaluated"), "metrics.csv: "),
    (
        "evaluations",
        changed("evaluated", {"round": 2}, trained_validation_accuracy=0.1),
        "trained_validation_accuracy is ",
    ),
    ("evaluations", changed("consensus", {"round": 2}, round=3), "was not due for this round"),
    ("evaluations", deleted("consensus", round=2), "was not evaluated when it was due"),
    ("evaluations", deleted("consensus", round=6), "an average of the models was not evaluated"),
    ("evaluations", doubled("consensus"), "was not due for this round"),
    ("summary", changed("consensus", {"round": 6}, distance=0.123), "consensus.distance is "),
    ("models", changed("final_model", {"client": 3}, blake2b="0" * 32), "model of client 3 has the hash "),
]


@pytest.mark.parametrize(("name", "change", "words"), VIOLATIONS)
def test_violation_is_reported_by_its_invariant(run: Path, name: str, change: Change, words: str) -> None:
    change(run)
    assert words in str(violated(run)[name].first)


def test_every_invariant_has_a_violation() -> None:
    elsewhere = {"waiting", "replay"}  # in test_rounds and test_replay
    assert {name for name, _, _ in VIOLATIONS} | elsewhere == INVARIANTS.keys()


def test_unchanged_run_passes_every_check(run: Path) -> None:
    checks = verify(run)
    assert [check.as_dict() for check in checks if check.outcome != "ok"] == []
    assert [check.name for check in checks if check.num_items == 0] == []


def test_violation_is_reported_with_its_line_and_counted_once(run: Path) -> None:
    records = read(run)
    place = index(records, "message_used")
    doubled("message_used")(run)
    check = violated(run)["outcomes"]
    assert (check.line, check.num_violations) == (place + 2, 1)


def test_unknown_record_violates_nothing_but_the_form(run: Path) -> None:
    records: Records = read(run)
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
    assert unchecked == {"conservation", "counts", "summary", "digest", "models"}


def test_sample_of_messages_is_checked(tmp_path: Path) -> None:
    run = simulate(small_scenario(**LIVELY, output={"message_events": 0.5}), tmp_path).folder
    assert run is not None
    checks = {check.name: check for check in verify(run)}
    assert {name for name, check in checks.items() if check.outcome != "ok"} == {
        *("counts", "use", "waiting", "reasons"),
    }
    assert "only some messages are recorded" in str(checks["use"].unchecked)
    deleted("message_sent", message=read(run)[index(read(run), "message_delivered")]["message"])(run)
    assert "outcomes" in violated(run)


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
