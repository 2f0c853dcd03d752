from typing import Annotated, Any

import pytest

from rdpfl_sim.components.options import Doc
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.components.schema import OneOf
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.scenario.component_list import (
    describe_attack,
    describe_component,
    describe_method,
    describe_scenario,
)
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.sections import CHOICES, AdversarySection


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("local", "local"),
        ("rdpfl", "rdpfl (median), lambda 0.01"),
        ({"name": "direct", "lambda": 1.0}, "direct (mean), lambda 1"),
        (
            {"name": "rdpfl", "max_norm": 0.001, "clip": False},
            "rdpfl (median), lambda 0.01, clip false, max_norm 0.001",
        ),
        (
            {"name": "direct", "aggregator": {"name": "trimmed_mean", "trim": 0.25}, "step": 0.5},
            "direct (trimmed_mean, trim 0.25), lambda 0.01, step 0.5",
        ),
        (
            {
                "name": "direct",
                "aggregator": "median",
                "pre_aggregators": [{"name": "nnm", "byzantine": 0.4}, "arc"],
            },
            "direct (nnm, byzantine 0.4 + arc + median), lambda 0.01",
        ),
        ({"name": "balance", "gamma": 0.3}, "balance"),
        ({"name": "balance", "gamma": 0.4}, "balance, gamma 0.4"),
    ],
)
def test_method_has_its_aggregator_lambda_and_options_that_differ_from_defaults(
    method: Any, words: str
) -> None:
    assert describe_method(CHOICES["method"].validate(method)) == words


@pytest.mark.parametrize(
    ("adversary", "words"),
    [
        ({}, "none"),
        ({"attack": "noise"}, "noise"),
        ({"attack": {"name": "noise", "sigma": 3.0}}, "noise (sigma 3)"),
        (
            {"attack": "sign_flip", "timing": {"name": "delayed", "seconds": 1.5}, "schedule": "sleeper"},
            "sign_flip + delayed (seconds 1.5), schedule sleeper",
        ),
        ({"attack": "alie", "knowledge": "own", "collude": False}, "alie, knowledge own, collude false"),
    ],
)
def test_attack_has_the_settings_that_differ_from_defaults(adversary: dict[str, Any], words: str) -> None:
    assert describe_attack(AdversarySection.model_validate(adversary)) == words


def test_scenario_description_lists_all_groups_of_attackers() -> None:
    groups = [{"attack": "noise", "ids": [0]}, {"attack": {"name": "noise", "sigma": 2.0}, "ids": [1]}]
    scenario = Scenario.from_dict({"adversary": groups, "topology": {"name": "torus", "rows": 2}})
    assert describe_scenario(scenario) == {
        "method": "rdpfl (median), lambda 0.01",
        "attack": "noise; noise (sigma 2)",
        "topology": "torus (rows 2)",
    }


def test_file_option_is_shown_without_its_folder() -> None:
    topology = CHOICES["topology"].validate({"name": "file", "path": "/some/where/edges.txt"})
    assert describe_component(topology) == "file (path edges.txt)"


class Worded(Direct):
    """A plug-in method with an option `aggregator` that is a string."""

    def __init__(self, settings: Any, *, aggregator: Annotated[str, Doc("a word")] = "first") -> None:
        super().__init__(settings)


def test_option_called_aggregator_may_be_a_plain_string() -> None:
    registry = Registry("method", Facts)
    registry.register(Worded)
    choice = OneOf(registry)
    assert describe_method(choice.validate("worded")) == "worded"
    assert (
        describe_method(choice.validate({"name": "worded", "aggregator": "last"}))
        == "worded, aggregator last"
    )
