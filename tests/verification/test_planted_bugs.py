"""Every invariant finds a realistic bug of the simulator, and its message names what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.verification.check import INVARIANTS, Check
from rdpfl_sim.verification.replay import replay
from rdpfl_sim.verification.verify import verify
from tests.runs import lived
from tests.support import cheap, small_scenario
from tests.verification.planted_bugs import BUGS, PlantedBug


def checks_of_a_run(bug: PlantedBug, parent: Path) -> dict[str, Check]:
    """Run the scenario of a bug and verify its records. Only `replay` requires real training."""
    scenario, is_replayed = small_scenario(**bug.scenario), bug.invariant == "replay"
    folder = RunFolder.create(parent, "run")
    lived(Experiment(scenario) if is_replayed else cheap(scenario), folder=folder)
    folder.close()
    checks = [*verify(folder.path), *([replay(folder.path)] if is_replayed else [])]
    return {check.name: check for check in checks}


def test_every_invariant_has_a_planted_bug() -> None:
    assert {bug.invariant for bug in BUGS.values()} == INVARIANTS.keys()


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_run_without_the_bug_has_no_violations(bug: PlantedBug, tmp_path: Path) -> None:
    checks = checks_of_a_run(bug, tmp_path)
    assert [check.as_dict() for check in checks.values() if check.outcome == "violated"] == []
    assert checks[bug.invariant].outcome == "ok"
    assert checks[bug.invariant].num_items > 0


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_planted_bug_is_reported_by_its_invariant_with_a_message_that_names_it(
    bug: PlantedBug, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        check = checks_of_a_run(bug, tmp_path)[bug.invariant]  # `verify` belongs to the same package
    assert check.outcome == "violated"
    assert re.search(bug.message, str(check.first)), check.first
