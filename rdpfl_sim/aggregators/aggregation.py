"""Compose pre-aggregators and an aggregator; compute the aggregate and the weight of each message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rdpfl_sim.aggregators.aggregator import (
    AGGREGATORS,
    PRE_AGGREGATORS,
    Aggregator,
    FixedSeed,
    PreAggregator,
    Seeded,
    aggregate,
    aggregate_rows,
    all_options,
    arguments,
    generator_of,
)
from rdpfl_sim.aggregators.coordinatewise import band_weights
from rdpfl_sim.inputs import call_read_only


@dataclass(frozen=True)
class Aggregation:
    """Pre-aggregators, applied in sequence, and the aggregator of the resulting rows.

    Pre-aggregators do not change the client's own vector. `clients` are the sources of seeds for components
    that draw random numbers.
    """

    aggregator: Aggregator
    pre_aggregators: Sequence[PreAggregator] = ()

    def __call__(self, messages: Tensor, own: Tensor, clients: Sequence[Seeded | None] = ()) -> Tensor:
        """Return the aggregates (n, d) of messages (n, m, d) for n clients with own vectors (n, d)."""
        return call_read_only(self._aggregates, messages, own, clients or [None] * len(own))

    def _aggregates(self, messages: Tensor, own: Tensor, clients: Sequence[Seeded | None]) -> Tensor:
        if not self.pre_aggregators:
            return aggregate_rows(self.aggregator, messages, own, clients)
        rows = zip(messages, own, clients, strict=True)
        return torch.stack(
            [aggregate(self.aggregator, self._rows(u, client), one, client) for u, one, client in rows]
        )

    def shares(self, messages: Tensor, own: Tensor, clients: Sequence[Seeded | None] = ()) -> Tensor | None:
        """Return the share (n, m) of each message in the weights of its aggregate, for telemetry.

        The shares of a client add up to 1, even if clipping reduces its weights. None if weights are unknown.
        """
        weights = self._weights_of_rows(messages, own, clients or [None] * len(own))
        return None if weights is None else weights / weights.sum(dim=1, keepdim=True)

    def _weights_of_rows(
        self, messages: Tensor, own: Tensor, clients: Sequence[Seeded | None]
    ) -> Tensor | None:
        band = None if self.pre_aggregators else _weighted_band(self.aggregator, messages.shape[1])
        if band is not None:
            return band_weights(messages, *band)
        rows = zip(messages, own, clients, strict=True)
        weights = [self.weights(u.contiguous(), *others) for u, *others in rows]  # bits may depend on strides
        known = [w for w in weights if w is not None]
        return torch.stack(known) if len(known) == len(weights) else None

    def weights(self, u: Tensor, own: Tensor, client: Seeded | None = None) -> Tensor | None:
        """Return the weights (m,), float64, of the messages u (m, d) of one client; None if unknown.

        The aggregate is the weighted sum of the messages. If weights differ between coordinates, as in a
        median, means over the coordinates are returned.
        """
        mixtures = []
        for place, pre_aggregator in enumerate(self.pre_aggregators):
            mixtures.append(pre_aggregator_weights(pre_aggregator, u, client, place))
            u = pre_aggregate(pre_aggregator, u, client, place)
        weights = aggregator_weights(self.aggregator, u, own, client)
        for mixture in reversed(mixtures):
            if weights is None or mixture is None:
                return None
            weights = weights @ mixture
        return weights

    def too_few(self, num_messages: int) -> bool:
        """Return whether there are too few messages for the options of the aggregator."""
        too_few = AGGREGATORS.facts_of(self.aggregator).too_few
        if too_few is None:
            return False
        num_rows = len(self._rows(torch.zeros(num_messages, 1), FixedSeed()))
        return too_few(num_rows, **all_options(self.aggregator))

    def _rows(self, u: Tensor, client: Seeded | None) -> Tensor:
        for place, pre_aggregator in enumerate(self.pre_aggregators):
            u = pre_aggregate(pre_aggregator, u, client, place)
        return u


def aggregator_weights(
    aggregator: Aggregator, u: Tensor, own: Tensor, client: Seeded | None = None
) -> Tensor | None:
    """Return the weights (m,) of the messages u (m, d) in the aggregate; None if they are unknown."""
    facts, options = AGGREGATORS.facts_of(aggregator), all_options(aggregator)
    if facts.weights is not None:
        return facts.weights(*arguments(facts, u, own, client), **options)
    band = _weighted_band(aggregator, len(u))
    return None if band is None else band_weights(u.unsqueeze(0), *band).squeeze(0)


def _weighted_band(aggregator: Aggregator, num_messages: int) -> tuple[int, int] | None:
    """Return the band of order statistics that determines the weights of messages, if there is one."""
    facts = AGGREGATORS.facts_of(aggregator)
    if facts.weights is not None or facts.order_statistics is None:
        return None
    return facts.order_statistics(num_messages, **all_options(aggregator))


def pre_aggregate(pre_aggregator: PreAggregator, u: Tensor, client: Seeded | None, place: int) -> Tensor:
    """Return the new rows (k, d) of the pre-aggregator at this place in the list."""
    return pre_aggregator(u, *_generators(pre_aggregator, client, place))


def pre_aggregator_weights(
    pre_aggregator: PreAggregator, u: Tensor, client: Seeded | None = None, place: int = 0
) -> Tensor | None:
    """Return the weights (k, m) of the messages u (m, d) in the k new rows; None if they are unknown."""
    weights = PRE_AGGREGATORS.facts_of(pre_aggregator).weights
    if weights is None:
        return None
    return weights(u, *_generators(pre_aggregator, client, place), **all_options(pre_aggregator))


def _generators(pre_aggregator: PreAggregator, client: Seeded | None, place: int) -> list[torch.Generator]:
    needed = PRE_AGGREGATORS.facts_of(pre_aggregator).needs_generator
    return [generator_of(client, f"pre_aggregators[{place}]")] if needed else []
