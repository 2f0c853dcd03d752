"""Warnings about the aggregator of a method."""

import pytest
import torch
from torch import Tensor

from rdpfl_sim.plugins import Positive, aggregator
from rdpfl_sim.simulation.experiment import Experiment
from tests.registries import temporary_components
from tests.support import small_scenario

CHANGE = {"name": "change_topology", "at_s": 1.0, "topology": "complete"}


def warnings(topology: object, method: object, **changes: object) -> list[str]:
    found = Experiment(small_scenario(topology=topology, method=method, **changes)).warnings
    return [warning for warning in found if warning.endswith(("their mean", "this message"))]


@pytest.mark.parametrize(
    "aggregator", ["median", "trimmed_mean", "krum", "geometric_median", {"name": "meamed", "byzantine": 0.4}]
)
def test_aggregator_that_needs_three_messages_equals_the_mean_on_a_ring(aggregator: object) -> None:
    name = aggregator["name"] if isinstance(aggregator, dict) else aggregator
    [warning] = warnings("ring", {"name": "rdpfl", "aggregator": aggregator})
    assert warning == f"method.aggregator: {name!r} of at most 2 messages is their mean"
    assert warnings("complete", {"name": "rdpfl", "aggregator": aggregator}) == []


def test_aggregator_of_one_neighbour_has_no_effect() -> None:
    two = {"clients": {"count": 2}, "partition": "iid"}
    assert warnings("complete", "rdpfl", **two) == [
        "method.aggregator: 'median' of one message is this message"
    ]


def test_one_neighbour_more_makes_a_difference() -> None:
    assert len(warnings("ring", "rdpfl")) == 1
    assert warnings({"name": "k_regular", "k": 3}, "rdpfl") == []
    assert warnings({"name": "grid", "rows": 1}, "rdpfl") == warnings("ring", "rdpfl")


def test_mean_methods_without_aggregator_and_graphs_that_change_cause_no_warning() -> None:
    assert warnings("ring", {"name": "direct", "aggregator": "mean"}) == []
    assert warnings("ring", "dpsgd") == []
    deadline = {"wait": {"name": "deadline", "seconds": 1.0}}
    assert warnings("ring", "rdpfl", faults=[CHANGE], timing=deadline) == []


def test_options_that_turn_an_aggregator_into_the_mean_are_named_on_any_graph() -> None:
    [warning] = warnings("complete", {"name": "rdpfl", "aggregator": {"name": "trimmed_mean", "trim": 0.0}})
    assert warning == "method.aggregator: 'trimmed_mean' of at most 5 messages is their mean"


def test_pre_aggregators_and_the_own_vector_count() -> None:
    clipped = {"name": "rdpfl", "aggregator": "median", "pre_aggregators": ["clipping"]}
    assert warnings("ring", clipped) == []
    [warning] = warnings("ring", {**clipped, "pre_aggregators": [{"name": "bucketing", "size": 1}]})
    assert "'bucketing', then 'median' of at most 2 messages" in warning
    assert warnings("ring", {"name": "rdpfl", "aggregator": "monna"}) == []


def test_plug_ins_are_compared_with_the_mean() -> None:
    with temporary_components():

        @aggregator
        def middle(u: Tensor) -> Tensor:
            """The mean of the smallest and the largest value."""
            return (u.amin(dim=0) + u.amax(dim=0)) / 2

        @aggregator
        def bounded(u: Tensor, *, limit: Positive = 1e4) -> Tensor:
            """The mean, bounded per coordinate."""
            return u.mean(dim=0).clamp(-limit, limit)

        @aggregator
        def picky(u: Tensor) -> Tensor:
            """The mean; large values are an error, which only a run with such values reports."""
            if u.abs().max() > 100:
                raise ValueError("too large")
            return torch.mean(u, dim=0)

        assert len(warnings("ring", {"name": "rdpfl", "aggregator": "middle"})) == 1
        assert warnings({"name": "k_regular", "k": 4}, {"name": "rdpfl", "aggregator": "middle"}) == []
        assert warnings("ring", {"name": "rdpfl", "aggregator": "bounded"}) == []
        assert warnings("ring", {"name": "rdpfl", "aggregator": "picky"}) == []
