"""Records as frames: all values of a small run, and totals of real runs."""

from pathlib import Path

import polars as pl
import pytest

from rdpfl_sim import simulate
from rdpfl_sim.errors import RunError
from rdpfl_sim.results import Run
from rdpfl_sim.results.run import last_evaluations
from tests.results.run_folders import EVENTS, SCENARIO, write_run
from tests.support import small_scenario

FAULTY = {
    "adversary": {"fraction": 0.34, "attack": "sign_flip", "timing": {"name": "flood", "copies": 3}},
    "network": {
        "latency": {"name": "exponential", "mean_s": 0.5},
        "loss": {"name": "bernoulli", "probability": 0.2},
        "duplication": 0.2,
    },
    "timing": {
        "wait": {"name": "quorum", "fraction": 0.5, "timeout_s": 1.0},
        "staleness": {"name": "keep", "max_age": 1},
    },
    "faults": [{"name": "crash", "clients": [0], "at_s": 1.5, "recover_after_s": 0.5}],
}


def test_a_message_is_one_row_with_its_times_and_its_outcome(tmp_path: Path) -> None:
    messages = Run(write_run(tmp_path)).messages.collect()
    columns = ("message", "sender", "recipient", "is_byzantine", "round", "original", "sent_s", "delivered_s")
    assert messages.select(columns).rows() == [
        (0, 0, 1, False, 1, None, 1.0, 1.5),
        (1, 0, 1, False, 1, 0, 1.2, None),
        (2, 2, 1, True, 9, None, 2.0, None),
        (3, 1, 0, False, 1, None, 3.0, None),
        (4, 1, 2, False, 1, None, 3.1, 3.5),
    ]
    assert messages.select("outcome", "reason", "used_s", "lost_s", "dropped_s", "weight", "age").rows() == [
        ("used", None, 3.0, None, None, 0.75, 0),
        ("rejected", "not finite", None, None, 2.5, None, None),
        ("lost", "loss", None, 2.5, None, None, None),
        ("in flight", None, None, None, None, None, None),
        ("left over", None, None, None, None, None, None),
    ]


def test_the_row_of_a_round_restarted_after_a_crash_describes_the_last_attempt(tmp_path: Path) -> None:
    rounds = Run(write_run(tmp_path)).rounds.collect()
    assert rounds.select(
        "client", "round", "started_s", "trained_s", "finished_s", "duration_s", "loss"
    ).rows() == [
        (0, 1, 3.0, None, None, 0.5, None),
        (1, 1, 0.0, 3.0, 3.0, 3.0, None),
    ]


def test_diagnostics_of_plug_ins_become_columns(tmp_path: Path) -> None:
    rounds = Run(write_run(tmp_path)).rounds.collect()
    assert rounds["moved"].to_list() == [None, 0.25]


def test_damaged_estimate_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "events.jsonl"
    path.write_text(path.read_text().replace('"moved":', '"moved"'))
    with pytest.raises(RunError, match=r"events\.jsonl is damaged at line 19"):
        Run(tmp_path).rounds.collect()


def test_faults_are_rows_with_time_kind_phase_and_affected_clients(tmp_path: Path) -> None:
    faults = Run(write_run(tmp_path)).faults
    assert faults.select("time_s", "fault", "kind", "phase", "clients", "factor", "for_good").rows() == [
        (0.0, 0, "slow_down", "start", [1], 3.0, None),
        (2.0, 1, "crash", "start", [0], None, False),
    ]


def test_metrics_are_numeric_and_missing_values_are_null(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path))
    assert run.metrics.select(
        "client", "is_byzantine", "hops", "trained_personal_accuracy", "trained_personal_loss"
    ).rows() == [
        (0, False, 2, 0.25, None),
        (2, True, 0, 0.5, None),
        (0, False, None, 0.75, float("inf")),
    ]
    assert run.latest["personal_accuracy"].to_list() == [0.75, 0.5]


def test_evaluations_are_those_of_one_moment_without_its_prefix(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path))
    columns = ("client", "time_s", "round", "personal_accuracy")
    trained, updated = run.evaluations(), run.evaluations("updated")
    assert trained.select(columns).rows() == [(0, 0.0, 0, 0.25), (2, 0.0, 0, 0.5), (0, 1.0, 1, 0.75)]
    assert updated.select(columns).rows() == [(0, 0.0, 0, 0.25), (0, 3.0, 1, 0.625)]
    assert trained.columns == updated.columns
    assert run.evaluations("trained").equals(trained)
    with pytest.raises(ValueError, match="one of trained, updated, not 'last'"):
        run.evaluations("last")


def test_evaluations_are_those_after_the_exchange_if_the_scenario_selects_only_them(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path, scenario={**SCENARIO, "evaluation": {"moments": "updated"}}))
    assert run.moment == "updated"
    assert run.evaluations().equals(run.evaluations("updated"))


def test_events_are_selected_by_name_and_have_only_their_own_fields(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path))
    assert run.events("message_lost").collect_schema().names() == [
        *("event", "time_s", "message", "sender", "recipient", "round", "reason")
    ]
    assert run.events("message_lost", "fault").collect()["event"].to_list() == [
        "fault",
        "fault",
        "message_lost",
    ]
    assert run.events().collect().height == len(EVENTS)


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_an_incomplete_last_line_is_ignored(tmp_path: Path, cut: int) -> None:
    write_run(tmp_path)
    for name in ("events.jsonl", "metrics.csv"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-cut])
    run = Run(tmp_path)
    assert run.events().collect().height == len(EVENTS) - 1
    assert run.metrics.height == 2
    assert run.messages.collect()["outcome"].to_list()[-1] == "in flight"


def test_a_run_without_records_has_empty_frames_with_the_usual_columns(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path, events=()))
    (tmp_path / "metrics.csv").unlink()
    (tmp_path / "topology.json").unlink()
    assert (run.has_events, run.message_fraction, run.status, run.num_clients) == (
        False,
        0.0,
        "unfinished",
        3,
    )
    for frame in (run.messages.collect(), run.rounds.collect(), run.faults, run.metrics, run.latest):
        assert frame.height == 0
    assert "outcome" in run.messages.collect_schema()


def test_a_folder_without_a_scenario_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run folder: it has no scenario\.toml"):
        Run(tmp_path)


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_frames_agree_with_the_summary_of_a_real_run(tmp_path: Path, fraction: float) -> None:
    scenario = small_scenario(
        **FAULTY, rounds=8, output={"message_events": fraction, "folder": str(tmp_path)}
    )
    result = simulate(scenario, tmp_path)
    run = Run(result.folder)
    messages, counts = run.messages.collect(), result.summary["messages"]
    outcomes = dict(messages.group_by("outcome").len().rows())
    for outcome in ("used", "lost", "stale", "duplicate", "rejected", "left over", "in flight"):
        expected = counts[outcome.replace(" ", "_")]
        found = outcomes.get(outcome, 0)
        assert found == expected if fraction == 1 else found <= expected
    if fraction == 1:
        assert messages.height == counts["sent"]
        delays = messages["delay_s"].drop_nulls()
        assert delays.mean() == pytest.approx(result.summary["telemetry"]["delay_s"]["mean"])
    finished = run.rounds.filter(pl.col("finished_s").is_not_null() & ~pl.col("is_byzantine")).collect()
    assert finished.height == result.summary["telemetry"]["rounds"]["all"]["num"]
    assert run.faults.height == result.summary["num_faults"]
    for moment, section in (("trained", result.summary), ("updated", result.summary["updated"])):
        honest = last_evaluations(run.evaluations(moment).filter(~pl.col("is_byzantine")))
        mean = section["accuracy"]["honest"]["personal"]["mean"]
        assert honest["personal_accuracy"].mean() == pytest.approx(mean)
    assert run.latest.equals(last_evaluations(run.evaluations("trained")))
