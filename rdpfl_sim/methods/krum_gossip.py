"""Gossip with any robust aggregator in place of the average.

Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent", NeurIPS 2017, for Krum; here it chooses among models.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rdpfl_sim.maths.aggregators import krum
from rdpfl_sim.maths.estimator import norm
from rdpfl_sim.maths.influence import influence
from rdpfl_sim.maths.types import Local, Payload, Received
from rdpfl_sim.methods import base
from rdpfl_sim.methods.directions import AggregatorChoice
from rdpfl_sim.methods.gossip import distances


class KrumGossip(base.Method):
    """w <- Aggregator(x, x_1, ..., x_n) of the own and all models that arrived; by default Krum.

    A stale model counts as one that is nearer to the own: x + weight (x_j - x).
    """

    def __init__(self, settings: base.Settings, *, aggregator: AggregatorChoice = krum) -> None:
        self.aggregator = aggregator

    def outgoing(self, state: base.State, own: Local, home: base.Home) -> tuple[base.State, Payload]:
        """The trained model w~."""
        return state, Payload(own.w_tilde)

    def origin(self, state: base.State) -> Tensor | None:
        """The model before its training."""
        return state.w

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[base.State, base.Diagnostics]:
        """The aggregate; the own model in a round without messages."""
        w = self.aggregator(_models(own.w_tilde, received)) if received else own.w_tilde
        return base.State(w), {"moved": norm(w - own.w_tilde)}

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """How far each model is from the own, and its weight in the aggregate."""
        weights = influence(self.aggregator, _models(own.w_tilde, received))
        return base.Inspection(
            distances(own.w_tilde, received), None, None if weights is None else weights[1:].tolist()
        )


def _models(x: Tensor, received: Sequence[Received]) -> Tensor:
    """The own model and all that arrived, as rows."""
    return torch.stack(
        [x, *(m.vector if m.weight == 1.0 else torch.lerp(x, m.vector, m.weight) for m in received)]
    )
