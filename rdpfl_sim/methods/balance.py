"""BALANCE: accept models close to the client's own; the allowed distance decreases over time.

Fang, Zhang, Hairi, Khanduri, Liu, Lu, Liu and Gong, "Byzantine-Robust Decentralized Federated Learning",
ACM CCS 2024, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Annotated

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, NonNegative, Positive
from rdpfl_sim.methods.base import ClientView, Inbox, RunInfo, method
from rdpfl_sim.methods.gossip import Gossip, OwnShare, distances, equal_shares
from rdpfl_sim.vectors import row_norms


@method
class Balance(Gossip):
    """w <- alpha x + (1 - alpha) mean of the x_j with |x_j - x| <= gamma exp(-kappa t / T) |x| (BALANCE).

    t is the client's own round. If no model is close enough, the client keeps its own model.
    """

    def __init__(
        self,
        run: RunInfo,
        *,
        gamma: Annotated[Positive, Doc("allowed distance at the start, relative to |x|")] = 0.3,
        kappa: Annotated[NonNegative, Doc("rate at which the allowed distance decreases")] = 1.0,
        alpha: OwnShare = 0.5,
    ) -> None:
        self.rounds = run.rounds
        self.gamma = gamma
        self.kappa = kappa
        self.alpha = alpha

    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return equal shares for all models that are close enough."""
        factors = [self.gamma * exp(-self.kappa * client.round / self.rounds) for client in clients]
        radius = row_norms(x) * torch.tensor(factors, dtype=torch.float64, device=x.device)
        return equal_shares(inbox, distances(x, inbox) <= radius.unsqueeze(1), 1 - self.alpha)
