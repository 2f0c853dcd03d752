"""Ditto over gossip: a shared model by gossip, and a personal one that is drawn to it.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
Algorithm 1, with gossip in place of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from rdpfl_sim.components.options import Doc, NonNegative
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Local, Received, Work
from rdpfl_sim.methods.gossip import Gossip, metropolis
from rdpfl_sim.methods.registry import method


@dataclass(frozen=True)
class State(base.State):
    """The personal model w, and the model that is shared with the neighbours."""

    shared: Tensor


@method
class Ditto(Gossip):
    """w <- SGD on the own loss + mu / 2 |w - x|^2, where x is a second model, learnt by gossip (Ditto)."""

    def __init__(
        self,
        settings: base.Settings,
        *,
        mu: Annotated[NonNegative, Doc("how strongly the shared model attracts the personal one")] = 0.1,
    ) -> None:
        self.mu = mu

    def start(self, w: Tensor, home: base.Home) -> State:
        """Both models start alike."""
        return State(w, w)

    def work(self, state: base.State) -> Work:
        """K steps for the shared model, and K for the personal one, drawn to where the other started."""
        assert isinstance(state, State)
        return Work(state.shared, companion=state.w, pull=self.mu)

    def origin(self, state: base.State) -> Tensor:
        """The shared model before its training."""
        assert isinstance(state, State)
        return state.shared

    def shares(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """Metropolis weights."""
        return metropolis(received, home)

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[State, base.Diagnostics]:
        """The trained personal model, and the mixture of the shared ones."""
        assert own.companion is not None
        shared, report = self.mixture(state, own.w_tilde, received, home)
        return State(own.companion, shared), report
