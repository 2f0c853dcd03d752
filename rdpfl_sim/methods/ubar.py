"""UBAR: first the nearest models, then those that are good on the own data.

Guo, Zhang, Yu, Xie, Ma, Xiang and Liu, "Byzantine-Resilient Decentralized Stochastic Gradient Descent",
IEEE TCSVT 2021, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan
from typing import Annotated

from torch import Tensor

from rdpfl_sim.components.options import Doc, PositiveFraction
from rdpfl_sim.methods import base
from rdpfl_sim.methods.exchange import Received
from rdpfl_sim.methods.gossip import Gossip, OwnShare, distances, equal_shares
from rdpfl_sim.methods.registry import method
from rdpfl_sim.rounding import round_down


@method
class Ubar(Gossip):
    """w <- alpha x + (1 - alpha) mean of the near models that are as good as x on an own batch (UBAR).

    Of the n models that arrived the floor(rho n) nearest are candidates, at least one. If none of them has a
    loss as low as the own, the best is taken, as in the paper.
    """

    def __init__(
        self,
        settings: base.Settings,
        *,
        rho: Annotated[PositiveFraction, Doc("assumed honest fraction of what arrived")] = 0.7,
        alpha: OwnShare = 0.5,
    ) -> None:
        self.rho = rho
        self.alpha = alpha

    def shares(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """The same for all that pass both tests."""
        lengths = distances(x, received)
        num_near = max(1, round_down(self.rho * len(received)))
        near = sorted(range(len(received)), key=lambda place: (lengths[place], place))[:num_near]
        batch = home.batch()
        losses = {place: _comparable(batch.loss(received[place].vector)) for place in near}
        own = _comparable(batch.loss(x))
        passed = {place for place in near if losses[place] <= own} or {min(near, key=losses.__getitem__)}
        accepted = [place in passed and losses[place] < inf for place in range(len(received))]
        return equal_shares(received, accepted, 1 - self.alpha)


def _comparable(loss: float) -> float:
    """A loss that can be compared: that of a diverged model is infinite."""
    return inf if isnan(loss) else loss
