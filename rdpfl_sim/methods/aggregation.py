"""Options of methods for aggregation: `aggregator`, and `pre_aggregators` applied before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Annotated, TypeAlias

from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.options import Doc
from rdpfl_sim.maths.aggregators import (
    AGGREGATORS,
    PRE_AGGREGATORS,
    Aggregation,
    Aggregator,
    PreAggregator,
)

AGGREGATOR = OneOf(
    AGGREGATORS,
    if_list="must be one aggregator, not a list; pre-aggregators belong in method.pre_aggregators",
)
AggregatorChoice: TypeAlias = Annotated[
    Aggregator, AGGREGATOR, Doc("RobustAgg, over the neighbours' directions")
]
PreAggregators: TypeAlias = Annotated[
    Sequence[Annotated[PreAggregator, OneOf(PRE_AGGREGATORS)]],
    Doc("pre-aggregators, applied in this order before the aggregator"),
]


def aggregation_components(method: Component) -> dict[str, Component]:
    """Return the pre-aggregators and the aggregator of a method by path, in order of application.

    Empty if the method does not aggregate with these components.
    """
    aggregator = getattr(method, "aggregator", None)
    if not isinstance(aggregator, Component):
        return {}
    before = getattr(method, "pre_aggregators", ())
    return {
        **{f"method.pre_aggregators[{index}]": component for index, component in enumerate(before)},
        "method.aggregator": aggregator,
    }


def when_too_few(method: Component) -> Callable[[int], bool]:
    """Return a function of n: whether n messages are too few for the options of the aggregator."""
    components = [component.bind() for component in aggregation_components(method).values()]
    if not components:
        return lambda num_messages: False
    *before, last = components
    return cache(Aggregation(last, before).too_few)


def unknown_weights(method: Component) -> Iterator[str]:
    """Yield a warning for each aggregator or pre-aggregator that does not declare message weights."""
    for path, component in aggregation_components(method).items():
        registry = AGGREGATORS if path == "method.aggregator" else PRE_AGGREGATORS
        if not registry.facts(component.name).has_weights:
            yield (
                f"{path}: {type(component).plugin} declares no weights, so telemetry has no message weights; "
                f"see the argument `weights` of @{registry.kind}"
            )
