"""A run survives a power failure at any moment of its life."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from rdpfl_sim import Scenario, simulate
from tests.fuzz.storage import power_failures, results
from tests.simulation.test_resume import At, crash, interrupt, left
from tests.simulation.test_snapshot import SMALL
from tests.support import cheap, small_scenario


def failures(name: str, folder: Path, num_states: int, action: Any = None) -> list[str]:
    scenario = small_scenario(**SMALL[name], rounds=3, checkpoint={"every_rounds": 1})
    expected = results(simulate(cheap(scenario), folder / "whole").folder)

    def start(parent: Path) -> None:
        left(cheap(scenario), parent, -1 if action is None else 13, action)

    return list(power_failures(start, cheap, expected, folder / "states", num_states, Random(name)))


@pytest.mark.parametrize("action", [None, interrupt, crash])
@pytest.mark.parametrize("name", SMALL)
def test_run_survives_power_failures(tmp_path: Path, name: str, action: Any) -> None:
    assert failures(name, tmp_path, 20, action) == []
