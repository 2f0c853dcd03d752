"""FedPer over gossip: the body of the network is shared, the head is personal.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers",
arXiv:1912.00818, with gossip in place of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from rdpfl_sim.components.options import Count, Doc
from rdpfl_sim.errors import OptionError
from rdpfl_sim.methods.base import (
    ClientView,
    Diagnostics,
    Inbox,
    MessageStats,
    Outgoing,
    RunInfo,
    State,
    Trained,
    layer_starts,
    method,
)
from rdpfl_sim.methods.gossip import Gossip, metropolis


@method
class Fedper(Gossip):
    """w <- (sum_j W_ij body_j, own head): the last layers are personal and never sent (FedPer)."""

    def __init__(
        self,
        run: RunInfo,
        *,
        head_layers: Annotated[Count, Doc("number of personal layers, counted from the last one")] = 1,
    ) -> None:
        starts = layer_starts(run.layers)
        if starts and head_layers >= len(starts):
            raise OptionError(
                "head_layers", f"must leave at least one layer to share; the model has {len(starts)} layers"
            )
        self.num_shared = starts[-head_layers] if starts else 0

    def payload(
        self, state: State, trained: Trained, clients: Sequence[ClientView]
    ) -> tuple[State, Outgoing]:
        """Send the trained bodies."""
        return state, Outgoing(self._body(trained.w))

    def reference_point(self, state: State) -> Tensor:
        """Return the bodies before their training."""
        return self._body(state.w)

    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return Metropolis weights."""
        return metropolis(inbox, clients)

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        """Mix the bodies and keep the clients' own heads."""
        body, report = self.mixture(state, self._body(trained.w), inbox, clients)
        return State(torch.cat([body, trained.w[:, self.num_shared :]], dim=1)), report

    def message_stats(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> MessageStats:
        """Return the distance of each body from the client's own, and its share."""
        return self.sent_stats(self._body(trained.w), inbox, clients)

    def _body(self, w: Tensor) -> Tensor:
        return w[:, : self.num_shared]
