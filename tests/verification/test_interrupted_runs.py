"""The records of a run that was interrupted between any two events have no violations."""

from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim.execution.determinism import deterministic_torch
from rdpfl_sim.records.run_folder import RunFolder
from rdpfl_sim.simulation.simulation import Simulation
from rdpfl_sim.verification.verify import verify
from tests.support import cheap, small_scenario
from tests.verification.test_tampering import LIVELY

NUM_INTERRUPTIONS = 40


def stopped_after(num_events: int, folder: Path, **changes: Any) -> Path:
    """Return the folder of a run that was interrupted after this number of events."""
    files = RunFolder.create(folder, "run")
    simulation = Simulation(cheap(small_scenario(**changes)), files, None)
    with deterministic_torch(1):
        simulation.begin()
        for _ in range(num_events):
            simulation.kernel.step()
        simulation._interrupt()
        simulation.finish()
    files.close()
    return files.path


def num_events_of(folder: Path, **changes: Any) -> int:
    simulation = Simulation(cheap(small_scenario(**changes)), RunFolder.create(folder, "whole"), None)
    num_events = 0
    simulation.begin()
    while simulation.status is None:
        simulation.kernel.step()
        num_events += 1
    return num_events


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, LIVELY], ids=["synchronous", "lively"])
def test_interrupted_run_has_no_violations(tmp_path: Path, changes: dict[str, Any]) -> None:
    num_events = num_events_of(tmp_path, **changes)
    for part in range(NUM_INTERRUPTIONS):
        run = stopped_after(part * num_events // NUM_INTERRUPTIONS, tmp_path, **changes)
        assert [check.as_dict() for check in verify(run) if check.outcome != "ok"] == []
