"""The records of every scenario in the repository have no violations."""

from pathlib import Path

import pytest

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.verification.verify import verify

SCENARIOS = Path(__file__).parents[2] / "scenarios"
PATHS = [
    path
    for path in sorted([*SCENARIOS.glob("*.toml"), *SCENARIOS.glob("stress/*.toml")])
    if path.stem not in ("cifar10", "rivals")  # what needs a download, and what is a sweep
]


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_run_of_a_scenario_file_has_no_violations(path: Path, tmp_path: Path) -> None:
    folder = simulate(Scenario.load(path, ["rounds=5", "evaluation.global_test=false"]), tmp_path).folder
    assert folder is not None
    checks = verify(folder)
    assert [check.as_dict() for check in checks if check.outcome != "ok"] == []
    assert sum(check.num_items for check in checks) > 1000
