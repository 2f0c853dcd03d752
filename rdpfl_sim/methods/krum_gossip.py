"""Gossip with a robust aggregator instead of the average.

Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent", NeurIPS 2017, for Krum, which is applied to models here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from rdpfl_sim.aggregators import Aggregation, Aggregator, krum
from rdpfl_sim.components.options import Doc
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    RunInfo,
    State,
    Trained,
    method,
)
from rdpfl_sim.methods.directions import AGGREGATOR, PreAggregators
from rdpfl_sim.methods.gossip import ModelExchange, distances
from rdpfl_sim.vectors import clamp_finite, row_norms


@method
class KrumGossip(ModelExchange):
    """w <- Aggregator(x, x_1, ..., x_n) of the client's own and all received models; by default Krum.

    A stale model is replaced by x + weight (x_j - x), which is closer to the client's own. A client whose own
    model has diverged keeps it.
    """

    def __init__(
        self,
        run: RunInfo,
        *,
        aggregator: Annotated[Aggregator, AGGREGATOR, Doc("over own and received models")] = krum,
        pre_aggregators: PreAggregators = (),
    ) -> None:
        self.aggregation = Aggregation(aggregator, pre_aggregators)

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        """Aggregate the models. Keep the client's own model in a round without messages."""
        x = w = trained.w
        sound = row_norms(x).isfinite()
        if inbox.num_messages > 0 and sound.any():
            models = self._models(x, inbox).where(sound.view(-1, 1, 1), 0.0)
            w = self.aggregation(models, models[:, 0], clients).where(sound.unsqueeze(1), x)
        return State(w), self.displacement(state, x, w)

    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Return the distance of each model from the client's own, and its weight in the aggregate."""
        x = trained.w
        sound = row_norms(x).isfinite().unsqueeze(1)
        models = self._models(x, inbox).where(sound.unsqueeze(2), 0.0)
        weights = self.aggregation.shares(models, models[:, 0], clients)
        if weights is not None:
            weights = (weights[:, 1:] * inbox.weights).where(sound, 0.0)
        return MessageStats(distances(x, inbox), weights)

    def _models(self, x: Tensor, inbox: Inbox) -> Tensor:
        """Return each client's own model and all received models, (n, 1 + m, d)."""
        received = inbox.vectors
        if not inbox.all_fresh:
            share = inbox.weights.to(x.dtype).unsqueeze(2)
            closer = clamp_finite(x.unsqueeze(1) * (1 - share) + received * share)
            received = closer.where(share < 1, received)
        return torch.cat([x.unsqueeze(1), received], dim=1)
