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
from tests.verification.planted_bugs import BUGS


def checks_of_a_run(invariant: str, parent: Path) -> dict[str, Check]:
    """Run the scenario of a bug and verify its records. Only `replay` requires real training."""
    scenario = small_scenario(**BUGS[invariant].scenario)
    folder = RunFolder.create(parent, "run")
    lived(Experiment(scenario) if invariant == "replay" else cheap(scenario), folder=folder)
    folder.close()
    replayed = [replay(folder.path)] if invariant == "replay" else []
    return {check.name: check for check in [*verify(folder.path), *replayed]}


def test_every_invariant_has_a_planted_bug() -> None:
    assert BUGS.keys() == INVARIANTS.keys()


@pytest.mark.parametrize("invariant", BUGS)
def test_run_without_the_bug_has_no_violations(invariant: str, tmp_path: Path) -> None:
    checks = checks_of_a_run(invariant, tmp_path)
    assert [check.as_dict() for check in checks.values() if check.outcome == "violated"] == []
    assert checks[invariant].outcome == "ok"
    assert checks[invariant].num_items > 0


@pytest.mark.parametrize("invariant", BUGS)
def test_planted_bug_violates_its_invariant_with_a_message_that_names_it(
    invariant: str, tmp_path: Path
) -> None:
    bug = BUGS[invariant]
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        check = checks_of_a_run(invariant, tmp_path)[invariant]  # the bug is in the checked package
    assert check.outcome == "violated", bug.plant.__name__
    assert re.search(bug.message, str(check.first)), check.first
