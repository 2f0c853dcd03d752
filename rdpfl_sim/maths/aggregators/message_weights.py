"""The weight with which each message enters an aggregate, for telemetry."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rdpfl_sim.maths.aggregators.aggregator import AGGREGATORS, Aggregator, Chain, bound_options
from rdpfl_sim.maths.aggregators.coordinate_weights import band_weights
from rdpfl_sim.maths.aggregators.coordinatewise import num_trimmed, trimmed_mean
from rdpfl_sim.maths.aggregators.preaggregators import PRE_AGGREGATORS
from rdpfl_sim.rounding import round_up


def message_weights(aggregator: Aggregator, u: Tensor, own: Tensor) -> Tensor | None:
    """Return the weights (n,), float64, of the rows of u (n, d) in `aggregate(aggregator, u, own)`.

    They are not negative and add up to 1; what clipping removes is not counted. None if the aggregator, or a
    part of it, does not declare its weights.
    """
    if isinstance(aggregator, Chain):
        weights = _chain_weights(aggregator, u, own)
    else:
        weights = _declared_weights(aggregator, u, own)
    return None if weights is None else weights / weights.sum()


def _declared_weights(aggregator: Aggregator, u: Tensor, own: Tensor) -> Tensor | None:
    facts, options = AGGREGATORS.facts_of(aggregator), _all_options(aggregator)
    if facts.weights is not None:
        return facts.weights(*((u, own) if facts.needs_own else (u,)), **options)
    if facts.order_statistics is not None:
        return band_weights(u, *facts.order_statistics(len(u), **options))
    return None


def _chain_weights(chain: Chain, u: Tensor, own: Tensor) -> Tensor | None:
    """Trace the weights of the last aggregator back through the mixtures of the pre-aggregators."""
    mixtures = []
    for pre_aggregator in chain.before:
        mixture = PRE_AGGREGATORS.facts_of(pre_aggregator).weights
        if mixture is None:
            return None
        mixtures.append(mixture(u, **_all_options(pre_aggregator)))
        u = pre_aggregator(u)
    weights = message_weights(chain.last, u, own)
    for rows in reversed(mixtures):
        weights = None if weights is None else weights @ rows
    return weights


def trims_less(aggregator: Aggregator, n: int) -> bool:
    """Return whether a trimmed mean of n messages cuts fewer than ceil(trim n) per side: n is too small."""
    if isinstance(aggregator, Chain):
        for pre_aggregator in aggregator.before:
            n = len(pre_aggregator(torch.zeros(n, 1)))
        return trims_less(aggregator.last, n)
    if AGGREGATORS.facts_of(aggregator).name != trimmed_mean.__name__:
        return False
    trim = _all_options(aggregator)["trim"]
    return num_trimmed(n, trim) < round_up(trim * n)


def _all_options(component: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of a component, defaults included."""
    function = inspect.unwrap(component.func if isinstance(component, partial) else component)
    return {**(getattr(function, "__kwdefaults__", None) or {}), **bound_options(component)}
