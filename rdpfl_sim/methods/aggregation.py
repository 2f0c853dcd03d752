"""Options of methods for aggregation: `aggregator`, and `pre_aggregators` applied before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Annotated, TypeAlias

import torch

from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.options import Doc
from rdpfl_sim.errors import OptionError, PluginError
from rdpfl_sim.maths.aggregators import (
    AGGREGATORS,
    PRE_AGGREGATORS,
    Aggregation,
    Aggregator,
    PreAggregator,
)
from rdpfl_sim.maths.aggregators.aggregator import FixedSeed

MAX_COMPARED = 32
"""With more messages per client, aggregators are not compared with the mean."""

SCALES = (1.0, 1e-3, 1e3)
"""Sizes of the entries, and of an outlier, with which aggregators are compared with the mean."""

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


def never_differs_from_mean(method: Component, max_messages: int) -> Iterator[str]:
    """Yield a warning if the aggregate of at most `max_messages` messages is always their mean."""
    components = aggregation_components(method).values()
    names = [component.name for component in components]
    if names in ([], ["mean"]) or not 0 < max_messages <= MAX_COMPARED:
        return
    *before, last = (component.bind() for component in components)
    try:
        if not all(_is_mean(Aggregation(last, before), num) for num in range(max_messages, 0, -1)):
            return
    except (OptionError, PluginError):  # the run reports it if its messages cause it
        return
    outcome = (
        "one message is this message"
        if max_messages == 1
        else f"at most {max_messages} messages is their mean"
    )
    yield f"method.aggregator: {', then '.join(map(repr, names))} of {outcome}"


def _is_mean(aggregation: Aggregation, num_messages: int) -> bool:
    """Return whether the aggregate is the mean for random messages of several sizes, also with an outlier."""
    generator = torch.Generator().manual_seed(num_messages)
    for scale, outlier in product(SCALES, SCALES):
        u = scale * torch.randn(num_messages, 8, generator=generator)
        u[0] *= outlier
        own = scale * torch.randn(8, generator=generator)
        mean = u.mean(dim=0)
        result = aggregation(u.unsqueeze(0), own.unsqueeze(0), [FixedSeed()]).squeeze(0)
        if not torch.allclose(result, mean, rtol=1e-4, atol=1e-5 * float(u.abs().max())):
            return False
    return True
