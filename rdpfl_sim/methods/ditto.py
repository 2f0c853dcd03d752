"""Ditto over gossip: a shared model by gossip, and a personal model with a proximal term towards it.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
Algorithm 1, with gossip in place of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from rdpfl_sim.components.options import Doc, NonNegative
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    RunInfo,
    State,
    Trained,
    TrainingTask,
    method,
)
from rdpfl_sim.methods.gossip import Gossip, metropolis


@dataclass(frozen=True)
class DittoState(State):
    """The personal models w, and the models that are shared with neighbours."""

    shared: Tensor  # (n, d)


@method
class Ditto(Gossip):
    """w <- SGD on the client's own loss + mu / 2 |w - x|^2; x is a second model, learnt by gossip (Ditto)."""

    def __init__(
        self,
        run: RunInfo,
        *,
        mu: Annotated[NonNegative, Doc("weight of the proximal term towards the shared model")] = 0.1,
    ) -> None:
        self.mu = mu

    def init(self, w: Tensor, clients: Sequence[ClientView]) -> DittoState:
        """Start both models with the same weights."""
        return DittoState(w, w)

    def training(self, state: State) -> TrainingTask:
        """Train the shared model, and the personal model with a term towards the initial shared model."""
        assert isinstance(state, DittoState)
        return TrainingTask(state.shared, second_w=state.w, proximal_mu=self.mu)

    def trained_model(self, trained: Trained) -> Tensor:
        """Return the personal models."""
        assert trained.second_w is not None
        return trained.second_w

    def reference_point(self, state: State) -> Tensor:
        """Return the shared models before their training."""
        assert isinstance(state, DittoState)
        return state.shared

    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return Metropolis weights."""
        return metropolis(inbox, clients)

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[DittoState, Diagnostics]:
        """Keep the trained personal models and mix the shared models."""
        assert trained.second_w is not None
        shared, report = self.mixture(state, trained.w, inbox, clients)
        return DittoState(trained.second_w, shared), report
