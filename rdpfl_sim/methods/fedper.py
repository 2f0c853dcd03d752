"""FedPer over gossip: the body of the network is shared, the head stays at home.

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
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Local, Payload, Received
from rdpfl_sim.methods.gossip import Gossip, distances, metropolis
from rdpfl_sim.methods.registry import method


@method
class Fedper(Gossip):
    """w <- (sum_j W_ij body_j, own head): the last layers are personal and never sent (FedPer)."""

    def __init__(
        self,
        settings: base.Settings,
        *,
        head_layers: Annotated[Count, Doc("how many layers, from the last one on, are personal")] = 1,
    ) -> None:
        starts = base.layer_starts(settings.layers)
        if starts and head_layers >= len(starts):
            raise OptionError(
                "head_layers", f"must leave something to share; the model has {len(starts)} layers"
            )
        self.num_shared = starts[-head_layers] if starts else 0

    def outgoing(self, state: base.State, own: Local, home: base.Home) -> tuple[base.State, Payload]:
        """The trained body."""
        return state, Payload(own.w_tilde[: self.num_shared])

    def origin(self, state: base.State) -> Tensor:
        """The body before its training."""
        return state.w[: self.num_shared]

    def shares(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """Metropolis weights."""
        return metropolis(received, home)

    def update(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> tuple[base.State, base.Diagnostics]:
        """The mixture of the bodies, and the own head."""
        body, report = self.mixture(state, own.w_tilde[: self.num_shared], received, home)
        return base.State(torch.cat([body, own.w_tilde[self.num_shared :]])), report

    def inspect(
        self, state: base.State, own: Local, received: Sequence[Received], home: base.Home
    ) -> base.Inspection:
        """How far each body is from the own, and its share."""
        body = own.w_tilde[: self.num_shared]
        return base.Inspection(distances(body, received), None, self.granted(body, received, home))
