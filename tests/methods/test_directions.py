from __future__ import annotations

from functools import partial

import pytest
import torch

from rdpfl_sim import Scenario, ScenarioError, simulate
from rdpfl_sim.aggregators import median, monna, nnm
from rdpfl_sim.methods import METHODS, base
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.rdpfl import Rdpfl
from rdpfl_sim.scenario.sections import CHOICES
from tests.methods.one_client import messages, start, stats, update
from tests.support import trained

SETTINGS = base.RunInfo(rounds=10)
NEIGHBOURS = messages([5.0], [1.0], [2.0], [-9.0])


@pytest.mark.parametrize("method", [Direct, Rdpfl])
def test_neighbours_nearest_to_the_own_direction_count_for_monna(method: type[Direct] | type[Rdpfl]) -> None:
    # The own direction is w - w~ = 4; of four neighbours the nearest two are at 5 and 2.
    chosen = method(SETTINGS, lambda_=1.0, aggregator=partial(monna, byzantine=0.5))
    state, own = (
        start(chosen, torch.tensor([10.0])),
        trained(torch.tensor([6.0]), num_steps=1, learning_rate=1.0),
    )
    after, _ = update(chosen, state, own, NEIGHBOURS)
    assert after.w.item() == pytest.approx(10 - (4 + 3.5))
    assert stats(chosen, state, own, NEIGHBOURS).weight == [0.5, 0.0, 0.5, 0.0]


WITH_AGGREGATOR = [name for name in METHODS if "aggregator" in CHOICES["method"].table(name).model_fields]


@pytest.mark.parametrize("name", WITH_AGGREGATOR)
def test_every_method_with_an_aggregator_applies_pre_aggregators_first(name: str) -> None:
    # One bucket holds all messages, so that Krum can only choose their mean.
    options = {"aggregator": "krum", "pre_aggregators": [{"name": "bucketing", "size": 100}]}
    chosen = CHOICES["method"].validate({"name": name, **options}).bind()(SETTINGS)
    state, own = (
        start(chosen, torch.tensor([10.0])),
        trained(torch.tensor([6.0]), num_steps=1, learning_rate=1.0),
    )
    weights = stats(chosen, state, own, NEIGHBOURS).weight
    averaged = CHOICES["method"].validate({"name": name, "aggregator": "mean"}).bind()(SETTINGS)
    assert weights == pytest.approx(stats(averaged, state, own, NEIGHBOURS).weight)
    after, expected = (update(each, state, own, NEIGHBOURS)[0] for each in (chosen, averaged))
    assert after.w.item() == pytest.approx(expected.w.item())


@pytest.mark.parametrize("method", [Direct, Rdpfl])
def test_messages_are_mixed_before_the_median_is_taken(method: type[Direct] | type[Rdpfl]) -> None:
    # The means of pairs of nearest neighbours are 3.5, 1.5, 1.5 and -4, and the median of these is 1.5.
    half = partial(nnm, byzantine=0.5)
    chosen = method(SETTINGS, lambda_=1.0, aggregator=median, pre_aggregators=[half])
    state, own = (
        start(chosen, torch.tensor([10.0])),
        trained(torch.tensor([6.0]), num_steps=1, learning_rate=1.0),
    )
    after, _ = update(chosen, state, own, NEIGHBOURS)
    assert after.w.item() == pytest.approx(10 - (4 + 1.5))
    assert stats(chosen, state, own, NEIGHBOURS).weight == [0.0, 0.5, 0.5, 0.0]


def scenario(**options: object) -> Scenario:
    return Scenario.from_dict(
        {
            "rounds": 2,
            "clients": {"count": 4},
            "topology": "complete",
            "data": {"name": "synthetic", "num_train": 80, "num_test": 20},
            "method": {"name": "rdpfl", **options},
        }
    )


def test_pre_aggregators_are_written_with_the_scenario_and_read_again() -> None:
    first = scenario(pre_aggregators=[{"name": "nnm", "byzantine": 0.2}, "arc"])
    assert first.to_dict()["method"]["pre_aggregators"] == [
        {"name": "nnm", "byzantine": 0.2},
        {"name": "arc", "byzantine": 0.3},
    ]
    assert Scenario.from_dict(first.to_dict()) == first
    assert Scenario.from_dict(scenario().to_dict()) == scenario(pre_aggregators=[])


@pytest.mark.parametrize(
    "options",
    [
        {"aggregator": {"name": "trimmed_mean", "trim": 0.2}, "pre_aggregators": ["nnm", "arc"]},
        {"aggregator": "monna", "pre_aggregators": ["bucketing"]},
        {"aggregator": "mean", "pre_aggregators": ["clipping"]},
        {"aggregator": "caf"},
    ],
)
def test_summary_has_the_shares_of_messages_which_add_up_to_one(options: dict[str, object]) -> None:
    telemetry = simulate(scenario(**options)).summary["telemetry"]
    assert telemetry["messages_from"]["honest"]["relative_weight"] == pytest.approx(1.0)


def problems(**options: object) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        scenario(**options)
    return [str(problem) for problem in caught.value.problems]


def test_mistakes_in_pre_aggregators_are_reported_with_their_path() -> None:
    assert problems(pre_aggregators=["median", {"name": "nnm", "byzantin": 0.2}]) == [
        "method.pre_aggregators[0]: no pre_aggregator is called 'median'; "
        "allowed: nnm, bucketing, clipping, arc (given: 'median')",
        "method.pre_aggregators[1].byzantin: unknown key; did you mean 'byzantine'?; "
        "allowed: name, byzantine (given: 0.2)",
    ]


def test_list_of_aggregators_is_rejected_with_the_name_of_the_option_to_use() -> None:
    assert problems(aggregator=["nnm", "median"]) == [
        "method.aggregator: must be one aggregator, not a list; "
        "pre-aggregators belong in method.pre_aggregators (given: ['nnm', 'median'])"
    ]
