"""The settings in which runs differ, without options at their default."""

import pytest

from rdpfl_sim import Run, simulate
from rdpfl_sim.results.sweep import differing_settings
from tests.support import small_scenario

ATTACKED = {"fraction": 0.4, "attack": {"name": "noise", "sigma": 3.0}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    scenarios = [
        small_scenario(rounds=1, method="local"),
        small_scenario(rounds=1, method={"name": "rdpfl", "lambda": 0.5, "aggregator": "mean"}),
        small_scenario(rounds=1, method={"name": "rdpfl", "lambda": 0.5, "c": 2.0}, adversary=ATTACKED),
    ]
    folders = [simulate(each, tmp_path_factory.mktemp("runs")).folder for each in scenarios]
    return [Run(folder) for folder in folders if folder is not None]


def test_default_options_of_a_component_that_only_some_runs_have_are_omitted(runs: list[Run]) -> None:
    assert differing_settings(runs) == {
        "method.name": ["local", "rdpfl", "rdpfl"],
        "method.lambda": [None, 0.5, 0.5],
        "method.c": [None, 1.5, 2.0],
        "method.aggregator.name": [None, "mean", "median"],
        "adversary.fraction": [None, None, 0.4],
        "adversary.attack.name": [None, None, "noise"],
        "adversary.attack.sigma": [None, None, 3.0],
    }


def test_run_whose_defaults_are_unknown_is_compared_with_all_its_options(runs: list[Run]) -> None:
    local, rdpfl, _ = runs
    assert "method.g_d" not in differing_settings([local, rdpfl])
    assert "adversary.placement" not in differing_settings([local, rdpfl])
    (rdpfl.folder / "provenance.json").unlink()
    found = differing_settings([Run(local.folder), Run(rdpfl.folder)])
    assert found["method.c"] == [None, 1.5]
