"""Changed summaries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.records.schema import SCHEMA
from tests.support import small_scenario
from tests.verification.changed_runs import LIVELY, change_json, violated


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("conservation", lambda summary: summary["messages"].update(sent=1)),
        ("conservation", lambda summary: summary["messages"].update(left_over=-1)),
        ("counts", lambda summary: summary["messages"].update(reordered=-1)),
        ("counts", lambda summary: summary["messages"].update(bytes=1)),
        ("summary", lambda summary: summary.update(simulated_s=1.0)),
        ("summary", lambda summary: summary["accuracy"]["honest"]["personal"].update(mean=0.99)),
        ("summary", lambda summary: summary.update(rounds_done=[6, 6], num_faults=0)),
        ("digest", lambda summary: summary.update(digest="0" * 64)),
        (
            "complete",
            lambda summary: (
                summary.clear(),
                summary.update(schema=SCHEMA, status="failed", error="full disk"),
            ),
        ),
    ],
)
def test_changed_summary_is_reported(run: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    change_json(run / "summary.json", change)
    assert name in violated(run)


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
