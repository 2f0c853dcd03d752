from __future__ import annotations

from functools import partial

import pytest
import torch

from rdpfl_sim import Scenario, ScenarioError, simulate
from rdpfl_sim.maths.aggregators import median, monna
from rdpfl_sim.maths.aggregators.aggregator import Chain
from rdpfl_sim.maths.aggregators.preaggregators import nnm
from rdpfl_sim.methods import base
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.rdpfl import Rdpfl
from tests.methods.one_client import messages, start, stats, update
from tests.support import trained

SETTINGS = base.RunInfo(learning_rate=1.0, rounds=10)
NEIGHBOURS = messages([5.0], [1.0], [2.0], [-9.0])


@pytest.mark.parametrize("method", [Direct, Rdpfl])
def test_neighbours_nearest_to_the_own_direction_count_for_monna(method: type[Direct] | type[Rdpfl]) -> None:
    # The own direction is w - w~ = 4; of four neighbours the nearest two are at 5 and 2.
    chosen = method(SETTINGS, lambda_=1.0, aggregator=partial(monna, byzantine=0.5))
    state, own = start(chosen, torch.tensor([10.0])), trained(torch.tensor([6.0]), num_steps=1)
    after, _ = update(chosen, state, own, NEIGHBOURS)
    assert after.w.item() == pytest.approx(10 - (4 + 3.5))
    assert stats(chosen, state, own, NEIGHBOURS).weight == [0.5, 0.0, 0.5, 0.0]


@pytest.mark.parametrize("method", [Direct, Rdpfl])
def test_chain_is_an_aggregator(method: type[Direct] | type[Rdpfl]) -> None:
    # The means of pairs of nearest neighbours are 3.5, 1.5, 1.5 and -4, and the median of these is 1.5.
    chosen = method(SETTINGS, lambda_=1.0, aggregator=Chain((partial(nnm, byzantine=0.5),), median))
    state, own = start(chosen, torch.tensor([10.0])), trained(torch.tensor([6.0]), num_steps=1)
    after, _ = update(chosen, state, own, NEIGHBOURS)
    assert after.w.item() == pytest.approx(10 - (4 + 1.5))
    assert stats(chosen, state, own, NEIGHBOURS).weight == [0.0, 0.5, 0.5, 0.0]


def scenario(aggregator: object) -> Scenario:
    return Scenario.from_dict(
        {
            "rounds": 2,
            "clients": {"count": 4},
            "topology": "complete",
            "data": {"name": "synthetic", "num_train": 80, "num_test": 20},
            "method": {"name": "rdpfl", "aggregator": aggregator},
        }
    )


CHAIN = [{"name": "nnm", "byzantine": 0.2}, "arc", {"name": "trimmed_mean", "trim": 0.2}]


def test_chain_survives_being_written_and_read() -> None:
    first = scenario(CHAIN)
    assert first.to_dict()["method"]["aggregator"] == [
        {"name": "nnm", "byzantine": 0.2},
        {"name": "arc", "byzantine": 0.3},
        {"name": "trimmed_mean", "trim": 0.2},
    ]
    assert Scenario.from_dict(first.to_dict()) == first


@pytest.mark.parametrize("aggregator", [CHAIN, ["bucketing", "monna"], ["clipping", "mean"], "caf"])
def test_run_says_how_much_each_message_counted(aggregator: object) -> None:
    telemetry = simulate(scenario(aggregator)).summary["telemetry"]
    # Weights add up to 1, so that their mean is that of an average.
    assert telemetry["messages_from"]["honest"]["relative_weight"] == pytest.approx(1.0)


def test_mistakes_in_a_chain_are_named_with_their_place() -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(["median", {"name": "nnm", "byzantin": 0.2}, {"name": "trimmed_mean", "trim": 0.9}])
    problems = [str(problem) for problem in caught.value.problems]
    assert problems == [
        "method.aggregator[0]: no pre_aggregator is called 'median'; "
        "allowed: nnm, bucketing, clipping, arc (given: 'median')",
        "method.aggregator[1].byzantin: unknown key; did you mean 'byzantine'?; "
        "allowed: name, byzantine (given: 0.2)",
        "method.aggregator[2].trim: input should be less than 0.5 (given: 0.9)",
    ]
