"""Aggregators as an option of methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.choice import OneAfterOthers, OneOf
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.options import Doc
from rdpfl_sim.maths.aggregators import AGGREGATORS, Aggregator
from rdpfl_sim.maths.aggregators.aggregator import Chain
from rdpfl_sim.maths.aggregators.message_weights import message_weights, trims_less
from rdpfl_sim.maths.aggregators.preaggregators import PRE_AGGREGATORS

AGGREGATION = OneAfterOthers(AGGREGATORS, others=OneOf(PRE_AGGREGATORS), combine=Chain)
AggregatorChoice: TypeAlias = Annotated[
    Aggregator,
    AGGREGATION,
    Doc("RobustAgg, over the neighbours' directions; a list begins with pre-aggregators"),
]


def message_weight_rows(aggregator: Aggregator, messages: Tensor, own: Tensor) -> Tensor | None:
    """Return the weight (n, m) of each message in its aggregate, if the aggregator has weights."""
    rows = zip(messages, own, strict=True)
    weights = [message_weights(aggregator, u.contiguous(), v) for u, v in rows]  # the bits depend on strides
    known = [weight for weight in weights if weight is not None]
    return torch.stack(known) if len(known) == len(weights) else None


def when_trimmed_less(method: Component) -> Callable[[int], bool]:
    """Return a function that tells whether n messages are too few for the method's trimmed mean.

    It then cuts fewer than ceil(trim n) messages per side.
    """
    aggregator = getattr(method, "aggregator", None)
    if not isinstance(aggregator, Component):
        return lambda num_messages: False
    return cache(partial(trims_less, aggregator.bind()))
