from pathlib import Path

import pytest

from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.sweeps.plan import check_data
from tests.sweeps.sweeping import make_run


def test_every_data_set_is_loaded_once_and_a_problem_reported_once(tmp_path: Path) -> None:
    absent = {"name": "npz", "path": str(tmp_path / "absent.npz")}
    runs = [make_run(seed, data=data) for seed in (1, 2) for data in (absent, {**absent, "subset": 10})]
    with pytest.raises(ScenarioError) as caught:
        check_data([*runs, make_run(1)])
    [problem] = caught.value.problems
    assert (problem.path, problem.value) == ("data.path", absent["path"])
    check_data([make_run(1), make_run(2)])
