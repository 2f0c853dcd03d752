"""BALANCE: trust models that are close to the own, ever closer.

Fang, Zhang, Hairi, Khanduri, Liu, Lu, Liu and Gong, "Byzantine-Robust Decentralized Federated Learning",
ACM CCS 2024, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Annotated

from torch import Tensor

from rdpfl_sim.components.options import Doc, NonNegative, Positive
from rdpfl_sim.maths.vectors import norm
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Received
from rdpfl_sim.methods.gossip import Gossip, OwnShare, distances, equal_shares
from rdpfl_sim.methods.registry import method


@method
class Balance(Gossip):
    """w <- alpha x + (1 - alpha) mean of the x_j with |x_j - x| <= gamma exp(-kappa t / T) |x| (BALANCE).

    t is the client's own round. If no model is close enough the own one stays as it is.
    """

    def __init__(
        self,
        settings: base.Settings,
        *,
        gamma: Annotated[Positive, Doc("how far a model may be at the start, relative to |x|")] = 0.3,
        kappa: Annotated[NonNegative, Doc("how fast that becomes less")] = 1.0,
        alpha: OwnShare = 0.5,
    ) -> None:
        self.rounds = settings.rounds
        self.gamma = gamma
        self.kappa = kappa
        self.alpha = alpha

    def shares(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """The same for all that are close enough."""
        radius = self.gamma * exp(-self.kappa * home.round / self.rounds) * norm(x)
        accepted = [distance <= radius for distance in distances(x, received)]
        return equal_shares(received, accepted, 1 - self.alpha)
