"""A run that was interrupted between any two events has no violations, also with a replay."""

from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.simulation.simulation import Simulation
from rdpfl_sim.verification.replay import compare
from rdpfl_sim.verification.verify import verify
from tests.support import cheap, small_scenario
from tests.verification.changed_runs import LIVELY

NUM_INTERRUPTIONS = 40


def stopped_after(num_events: int, folder: Path, **changes: Any) -> Path:
    """Return the folder of a run that was interrupted after this number of events."""
    files = RunFolder.create(folder, "run")
    simulation = Simulation(cheap(small_scenario(**changes)), files, None)
    with deterministic_torch(1):
        simulation.begin()
        for _ in range(num_events):
            simulation.kernel.step()
        simulation.end(RunStatus.INTERRUPTED)
        simulation.finish()
    files.close()
    return files.path


def whole(folder: Path, **changes: Any) -> tuple[Path, int]:
    """Return the folder of an uninterrupted run, and its number of events."""
    files = RunFolder.create(folder, "whole")
    simulation = Simulation(cheap(small_scenario(**changes)), files, None)
    num_events = 0
    with deterministic_torch(1):
        simulation.begin()
        while simulation.status is None:
            simulation.kernel.step()
            num_events += 1
        simulation.finish()
    files.close()
    return files.path, num_events


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, LIVELY], ids=["synchronous", "lively"])
def test_interrupted_run_has_no_violations(tmp_path: Path, changes: dict[str, Any]) -> None:
    again, num_events = whole(tmp_path, **changes)
    for part in range(NUM_INTERRUPTIONS):
        run = stopped_after(part * num_events // NUM_INTERRUPTIONS, tmp_path, **changes)
        checks = [*verify(run), compare(run, again)]
        assert [check.as_dict() for check in checks if check.outcome != "ok"] == []


def test_update_that_was_not_reported_is_a_violation_in_a_complete_run(tmp_path: Path) -> None:
    _, num_events = whole(tmp_path)
    run = stopped_after(num_events - 1, tmp_path)
    assert all(check.outcome == "ok" for check in verify(run))
    for name in ("events.jsonl", "summary.json"):
        (run / name).write_text((run / name).read_text().replace("interrupted", "finished"))
    violated = {check.name: str(check.first) for check in verify(run) if check.outcome != "ok"}
    assert "has no estimate" in violated["lemma 3"]
    assert "has no message_stats" in violated["weights"]
