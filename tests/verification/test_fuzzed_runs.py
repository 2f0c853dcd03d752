"""The records of random scenarios have no violations."""

from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, assume, given, note, settings

from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.verification.verify import verify
from tests.fuzzing import RandomScenario, random_scenarios
from tests.runs import lived
from tests.simulation.test_fuzz import loaded

NUM_SCENARIOS = 25 if settings().derandomize else 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@settings(max_examples=NUM_SCENARIOS, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=random_scenarios())
def test_random_scenario_has_no_violations(folder: Path, drawn: RandomScenario) -> None:
    files = {**drawn.files, "fuzz.toml": tomli_w.dumps(drawn.scenario)}
    for name, text in files.items():
        (folder / name).write_text(text)
        note(f"--- {name}\n{text}")
    experiment, _ = loaded(folder / "fuzz.toml")
    assume(experiment is not None)
    run = RunFolder.create(folder, "run")
    lived(experiment, folder=run)
    run.close()
    assert [check.as_dict() for check in verify(run.path) if check.outcome == "violated"] == []
