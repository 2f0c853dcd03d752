from pathlib import Path

from rdpfl_sim.sweeps.engine import folder_of, missing
from tests.sweeps.sweeping import make_run


def test_what_has_no_folder_is_missing_each_scenario_once(tmp_path: Path) -> None:
    complete, other = make_run(1), make_run(2)
    folder_of(complete, tmp_path).mkdir()
    assert missing([complete, other, other], tmp_path) == [other]
