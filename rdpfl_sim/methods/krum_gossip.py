"""Gossip with any robust aggregator in place of the average.

Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent", NeurIPS 2017, for Krum; here it chooses among models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc
from rdpfl_sim.maths.aggregators import Aggregator, aggregate, krum
from rdpfl_sim.maths.aggregators.message_weights import message_weights
from rdpfl_sim.methods import base
from rdpfl_sim.methods.directions import AGGREGATION
from rdpfl_sim.methods.exchange import Local, Received, is_finite
from rdpfl_sim.methods.gossip import ModelExchange, distances, mix
from rdpfl_sim.methods.registry import method


@method
class KrumGossip(ModelExchange):
    """w <- Aggregator(x, x_1, ..., x_n) of the own and all models that arrived; by default Krum.

    A stale model counts as one that is nearer to the own: x + weight (x_j - x). A client whose own model has
    diverged goes on as it is.
    """

    def __init__(
        self,
        settings: base.Settings,
        *,
        aggregator: Annotated[Aggregator, AGGREGATION, Doc("over the own and the neighbours' models")] = krum,
    ) -> None:
        self.aggregator = aggregator

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[base.State, base.Diagnostics]:
        """The aggregate; the own model in a round without messages."""
        x = own.w_tilde
        if not received or not is_finite(x):
            return base.State(x), self.displacement(state, x, x)
        w = aggregate(self.aggregator, _models(x, received), x)
        return base.State(w), self.displacement(state, x, w)

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """How far each model is from the own, and its weight in the aggregate."""
        x = own.w_tilde
        shares: list[float] | None = [0.0] * len(received)
        if is_finite(x):
            rows = message_weights(self.aggregator, _models(x, received), x)
            shares = (
                None
                if rows is None
                else [share * m.weight for share, m in zip(rows[1:].tolist(), received, strict=True)]
            )
        return base.Inspection(distances(x, received), None, shares)


def _models(x: Tensor, received: Sequence[Received]) -> Tensor:
    """The own model and all that arrived, as rows."""
    return torch.stack([x, *(m.vector if m.weight == 1.0 else mix(x, [m], [m.weight]) for m in received)])
