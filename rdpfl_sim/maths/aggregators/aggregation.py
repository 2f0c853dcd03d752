"""Compose pre-aggregators and an aggregator; compute the aggregate and the weight of each message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rdpfl_sim.maths.aggregators.aggregator import (
    AGGREGATORS,
    PRE_AGGREGATORS,
    Aggregator,
    PreAggregator,
    aggregate,
    aggregate_rows,
    all_options,
)
from rdpfl_sim.maths.aggregators.coordinatewise import band_weights


@dataclass(frozen=True)
class Aggregation:
    """Pre-aggregators, applied in sequence, and the aggregator of the resulting rows.

    Pre-aggregators do not change the client's own vector.
    """

    aggregator: Aggregator
    pre_aggregators: Sequence[PreAggregator] = ()

    def __call__(self, messages: Tensor, own: Tensor) -> Tensor:
        """Return the aggregates (n, d) of messages (n, m, d) for n clients with own vectors (n, d)."""
        if not self.pre_aggregators:
            return aggregate_rows(self.aggregator, messages, own)
        return torch.stack(
            [aggregate(self.aggregator, self._rows(u), one) for u, one in zip(messages, own, strict=True)]
        )

    def shares(self, messages: Tensor, own: Tensor) -> Tensor | None:
        """Return the share (n, m) of each message in the weights of its aggregate, for telemetry.

        The shares of a client add up to 1, even if clipping reduces its weights. None if weights are unknown.
        """
        rows = zip(messages, own, strict=True)
        weights = [self.weights(u.contiguous(), one) for u, one in rows]  # bits may depend on strides
        known = [w / w.sum() for w in weights if w is not None]
        return torch.stack(known) if len(known) == len(weights) else None

    def weights(self, u: Tensor, own: Tensor) -> Tensor | None:
        """Return the weights (m,), float64, of the messages u (m, d) of one client; None if unknown.

        The aggregate is the weighted sum of the messages. If weights differ between coordinates, as in a
        median, means over the coordinates are returned.
        """
        mixtures = []
        for pre_aggregator in self.pre_aggregators:
            mixtures.append(pre_aggregator_weights(pre_aggregator, u))
            u = pre_aggregator(u)
        weights = aggregator_weights(self.aggregator, u, own)
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
        num_rows = len(self._rows(torch.zeros(num_messages, 1)))
        return too_few(num_rows, **all_options(self.aggregator))

    def _rows(self, u: Tensor) -> Tensor:
        for pre_aggregator in self.pre_aggregators:
            u = pre_aggregator(u)
        return u


def aggregator_weights(aggregator: Aggregator, u: Tensor, own: Tensor) -> Tensor | None:
    """Return the weights (m,) of the messages u (m, d) in the aggregate; None if they are unknown."""
    facts, options = AGGREGATORS.facts_of(aggregator), all_options(aggregator)
    if facts.weights is not None:
        return facts.weights(*((u, own) if facts.needs_own else (u,)), **options)
    if facts.order_statistics is not None:
        return band_weights(u, *facts.order_statistics(len(u), **options))
    return None


def pre_aggregator_weights(pre_aggregator: PreAggregator, u: Tensor) -> Tensor | None:
    """Return the weights (k, m) of the messages u (m, d) in the k new rows; None if they are unknown."""
    weights = PRE_AGGREGATORS.facts_of(pre_aggregator).weights
    return None if weights is None else weights(u, **all_options(pre_aggregator))
