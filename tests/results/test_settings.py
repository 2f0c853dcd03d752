from rdpfl_sim.results.groups import differing_settings
from tests.support import small_scenario


def test_default_options_of_a_component_that_only_some_scenarios_have_are_omitted() -> None:
    attacked = {"fraction": 0.4, "attack": {"name": "noise", "sigma": 3.0}}
    scenarios = [
        small_scenario(method="local").to_dict(),
        small_scenario(method={"name": "rdpfl", "lambda": 0.5, "aggregator": "mean"}).to_dict(),
        small_scenario(method={"name": "rdpfl", "lambda": 0.5, "c": 2.0}, adversary=attacked).to_dict(),
    ]
    assert differing_settings(scenarios) == {
        "method.name": ["local", "rdpfl", "rdpfl"],
        "method.lambda": [None, 0.5, 0.5],
        "method.c": [None, 1.5, 2.0],
        "method.aggregator.name": [None, "mean", "median"],
        "adversary.fraction": [None, None, 0.4],
        "adversary.attack.name": [None, None, "noise"],
        "adversary.attack.sigma": [None, None, 3.0],
    }


def test_scenario_of_another_version_is_compared_with_all_its_options() -> None:
    old = small_scenario(method="local").to_dict() | {"gone": {"option": 1}}
    assert differing_settings([old, small_scenario(method="local").to_dict()]) == {"gone.option": [1, None]}
