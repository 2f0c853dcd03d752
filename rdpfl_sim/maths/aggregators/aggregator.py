"""How aggregators register and how they are called, for one client or for many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.maths.aggregators.order_statistics import band_sum

Aggregator: TypeAlias = Callable[..., Tensor]
"""One vector (d,) from the messages u (m, d), and from the own vector if it is declared with `needs_own`."""

PreAggregator: TypeAlias = Callable[[Tensor], Tensor]
"""New rows (k, d), k >= 1, from the messages u (m, d)."""

MAX_MESSAGES = 32
"""Above this number of messages per client, batching order statistics over clients brings nothing."""


@dataclass(frozen=True, kw_only=True)
class AggregatorFacts(Facts):
    """Metadata of an aggregator, set by its decorator.

    `weights`, `order_statistics` and `distance_bound` are called with the options of the aggregator as
    keywords.
    """

    needs_own: bool = False
    """Whether its second argument is the vector of the client itself, (d,)."""
    rows: bool = False
    """Whether it works on many clients at once: messages (n, m, d) and own vectors (n, d) give (n, d). The
    bits of a row must not depend on the other rows."""
    order_statistics: Callable[..., tuple[int, int]] | None = None
    """(low, high) for m messages, if the aggregate is the mean of the order statistics low, ..., high - 1 of
    each coordinate. Message weights and batching over clients follow from it."""
    weights: Callable[..., Tensor] | None = None
    """The weights (m,), float64, of the messages in the aggregate, from the arguments of the aggregator for
    one client. None if they follow from `order_statistics` or are unknown."""
    distance_bound: Callable[..., float] | None = None
    """For m messages within distance r of a point: the aggregate is at most `distance_bound(m)` r from it."""


AGGREGATORS = Registry("aggregator", AggregatorFacts)
aggregator = AGGREGATORS.register


@dataclass(frozen=True)
class Chain:
    """An aggregator of what pre-aggregators, one after the other, make of the messages."""

    before: tuple[PreAggregator, ...]
    last: Aggregator

    def __call__(self, u: Tensor, own: Tensor) -> Tensor:
        """Return the result of the last aggregator; pre-aggregators leave the own vector as it is."""
        for pre_aggregator in self.before:
            u = pre_aggregator(u)
        return aggregate(self.last, u, own)


def within_hull(m: int, **options: Any) -> float:
    """Return the distance bound of an aggregator that weights whole messages, with weights that sum to 1."""
    return 1.0


def bound_options(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options that are bound to a component; those that are not bound have their defaults."""
    return dict(function.keywords) if isinstance(function, partial) else {}


def aggregate(function: Aggregator, u: Tensor, own: Tensor) -> Tensor:
    """Return the aggregate (d,) of the messages u (m, d) for a client whose own vector is `own` (d,)."""
    facts = AGGREGATORS.facts_of(function)
    if facts.rows:
        return aggregate_rows(function, u.unsqueeze(0), own.unsqueeze(0)).squeeze(0)
    return function(u, own) if facts.needs_own or isinstance(function, Chain) else function(u)


def aggregate_rows(function: Aggregator, messages: Tensor, own: Tensor) -> Tensor:
    """Return the aggregates (n, d) of messages (n, m, d), m for each of n clients with own vectors (n, d).

    The bits of a row do not depend on the other rows. They equal those of `aggregate`, except for means of
    order statistics, which are summed in another order.
    """
    facts = AGGREGATORS.facts_of(function)
    if facts.rows:
        return function(messages, own) if facts.needs_own else function(messages)
    if facts.order_statistics is None or messages.shape[1] > MAX_MESSAGES:
        return torch.stack([aggregate(function, u, one) for u, one in zip(messages, own, strict=True)])
    low, high = facts.order_statistics(messages.shape[1], **bound_options(function))
    columns = messages.transpose(0, 1).flatten(1)
    result = (band_sum(columns, low, high) / (high - low)).view_as(own)
    for row in (~result.isfinite().all(dim=1)).nonzero().flatten().tolist():  # a sum has overflowed
        result[row] = aggregate(function, messages[row], own[row])
    return result
