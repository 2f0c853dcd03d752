"""Register aggregators and pre-aggregators; call aggregators for one or many clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from math import isfinite
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from rdpfl_sim.aggregators.order_statistics import band_sum
from rdpfl_sim.aggregators.weighting import weighted_sum
from rdpfl_sim.components.registry import Facts, Registry

T = TypeVar("T", bound=Callable[..., Tensor])

Aggregator: TypeAlias = Callable[..., Tensor]
"""One vector (d,) from the messages u (m, d), with `needs_own` the client's own vector (d,), and with
`needs_generator` a `torch.Generator`."""

PreAggregator: TypeAlias = Callable[..., Tensor]
"""New rows (k, d), k >= 1, from the messages u (m, d) and, with `needs_generator`, a `torch.Generator`."""


class Seeded(Protocol):
    """A client in one round, the source of seeds for random draws."""

    def seed(self, purpose: str) -> int:
        """Return a seed for this purpose, client and round."""


@dataclass(frozen=True)
class FixedSeed:
    """A client that always has the same seed, for calls outside a run."""

    value: int = 0

    def seed(self, purpose: str) -> int:
        """Return the seed."""
        return self.value


MAX_MESSAGES = 32
"""Above this number of messages per client, batching order statistics over clients is not faster."""


@dataclass(frozen=True, kw_only=True)
class AggregatorFacts(Facts):
    """Metadata of an aggregator, set by its decorator.

    Functions are called with all options of the aggregator as keyword arguments, including defaults.
    """

    needs_own: bool = False
    """Whether the second argument is the client's own vector (d,)."""
    needs_generator: bool = False
    """Whether the last argument is a `torch.Generator` on the CPU, seeded for this client and round; with
    `rows`, a list of one generator per client."""
    rows: bool = False
    """Whether one call handles many clients: messages (n, m, d) and own vectors (n, d) give (n, d). The
    bits of a row must not depend on the other rows."""
    order_statistics: Callable[..., tuple[int, int]] | None = None
    """(low, high) for m messages, if the aggregate is the mean of the order statistics low, ..., high - 1 of
    each coordinate. Message weights and batching over clients follow from it."""
    weights: Callable[..., Tensor] | None = None
    """The weights (m,), float64, from the arguments of the aggregator for one client: the aggregate is the
    weighted sum of the messages. An aggregator that weights each coordinate differently returns the mean over
    coordinates. None if they follow from `order_statistics` or are unknown."""
    distance_bound: Callable[..., float] | None = None
    """For m messages within distance r of a point: the aggregate is at most `distance_bound(m)` r from it."""
    too_few: Callable[..., bool] | None = None
    """Whether m messages are too few, so that fewer outliers are excluded than configured."""

    @property
    def has_weights(self) -> bool:
        """Whether the weights of messages are known."""
        return self.weights is not None or self.order_statistics is not None


@dataclass(frozen=True, kw_only=True)
class PreAggregatorFacts(Facts):
    """Metadata of a pre-aggregator, set by its decorator."""

    needs_generator: bool = False
    """Whether the last argument is a `torch.Generator` on the CPU, seeded for this client and round."""
    weights: Callable[..., Tensor] | None = None
    """The weights (k, m), float64, of the m messages in each of the k new rows, from the messages and all
    options. None if they are unknown."""

    @property
    def has_weights(self) -> bool:
        """Whether the weights of messages are known."""
        return self.weights is not None


AGGREGATORS = Registry("aggregator", AggregatorFacts)
aggregator = AGGREGATORS.register
PRE_AGGREGATORS = Registry("pre_aggregator", PreAggregatorFacts)
pre_aggregator = PRE_AGGREGATORS.register


def weighting_aggregator(*, needs_own: bool = False, needs_generator: bool = False) -> Callable[[T], T]:
    """Register an aggregator that is a weighted mean of whole messages; the function returns the weights.

    The weights (m,), float64, are not negative and add up to 1. The decorator returns the aggregator.
    """

    def register(weights: T) -> T:
        decorate = aggregator(
            needs_own=needs_own,
            needs_generator=needs_generator,
            weights=weights,
            distance_bound=within_hull,
        )
        return decorate(_weighted(weights))

    return register


def weighting_pre_aggregator(weights: T) -> T:
    """Register a pre-aggregator that returns weighted means; the function returns the weights (k, m)."""
    return pre_aggregator(weights=weights)(_weighted(weights))


def _weighted(weights: T) -> T:
    @wraps(weights)
    def function(u: Tensor, *others: Any, **options: Any) -> Tensor:
        return weighted_sum(weights(u, *others, **options), u)

    return cast("T", function)


def within_hull(m: int, **options: Any) -> float:
    """Return the distance bound of a weighted mean of whole messages."""
    return 1.0


def all_options(component: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of an aggregator or pre-aggregator, including defaults."""
    function, bound = (
        (component.func, component.keywords) if isinstance(component, partial) else (component, {})
    )
    return {**(getattr(inspect.unwrap(function), "__kwdefaults__", None) or {}), **bound}


def aggregate(function: Aggregator, u: Tensor, own: Tensor, client: Seeded | None = None) -> Tensor:
    """Return the aggregate (d,) of the messages u (m, d) for a client whose own vector is `own` (d,)."""
    facts = AGGREGATORS.facts_of(function)
    if facts.rows:
        return aggregate_rows(function, u.unsqueeze(0), own.unsqueeze(0), [client]).squeeze(0)
    return function(*arguments(facts, u, own, client))


def aggregate_rows(
    function: Aggregator, messages: Tensor, own: Tensor, clients: Sequence[Seeded | None] = ()
) -> Tensor:
    """Return the aggregates (n, d) of messages (n, m, d), m for each of n clients with own vectors (n, d).

    The bits of a row do not depend on the other rows. They equal the result of `aggregate`, except for means
    of order statistics, which are summed in a different order.
    """
    facts, clients = AGGREGATORS.facts_of(function), clients or [None] * len(own)
    if facts.rows:
        generators = [generator_of(client, "aggregator") for client in clients if facts.needs_generator]
        return function(messages, *[own] * facts.needs_own, *[generators] * facts.needs_generator)
    if facts.order_statistics is None or messages.shape[1] > MAX_MESSAGES:
        rows = zip(messages, own, clients, strict=True)
        return torch.stack([aggregate(function, *row) for row in rows])
    low, high = facts.order_statistics(messages.shape[1], **all_options(function))
    columns = messages.transpose(0, 1).flatten(1)
    result = (band_sum(columns, low, high) / (high - low)).view_as(own)
    if not isfinite(result.sum().item()):  # in some row a sum may have overflowed
        for row in (~result.isfinite().all(dim=1)).nonzero().flatten().tolist():
            result[row] = aggregate(function, messages[row], own[row], clients[row])
    return result


def arguments(
    facts: AggregatorFacts, u: Tensor, own: Tensor, client: Seeded | None
) -> tuple[Tensor | torch.Generator, ...]:
    """Return the positional arguments of an aggregator for one client."""
    generators = [generator_of(client, "aggregator")] if facts.needs_generator else []
    return (u, *[own] * facts.needs_own, *generators)


def generator_of(client: Seeded | None, purpose: str) -> torch.Generator:
    """Return a generator for the random draws of one component in this round of a client."""
    assert client is not None, f"the client whose seed the {purpose} needs is not given"
    return torch.Generator().manual_seed(client.seed(purpose))
