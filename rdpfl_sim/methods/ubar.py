"""UBAR: select the nearest models, then those that perform well on the client's own data.

Guo, Zhang, Yu, Xie, Ma, Xiang and Liu, "Byzantine-Resilient Decentralized Stochastic Gradient Descent",
IEEE TCSVT 2021, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan
from typing import Annotated

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, PositiveFraction, round_down
from rdpfl_sim.methods.base import ClientView, Inbox, RunInfo, method
from rdpfl_sim.methods.gossip import Gossip, OwnShare, distances, equal_shares


@method
class Ubar(Gossip):
    """w <- alpha x + (1 - alpha) mean of the near models that are as good as x on own data (UBAR).

    The candidates are the floor(rho n) nearest of the n received models, but at least one. If none has
    a loss as low as the client's own model, the best candidate is used, as in the paper.
    """

    batched = False

    def __init__(
        self,
        run: RunInfo,
        *,
        rho: Annotated[PositiveFraction, Doc("assumed honest fraction of the received models")] = 0.7,
        alpha: OwnShare = 0.5,
    ) -> None:
        self.rho = rho
        self.alpha = alpha

    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return equal shares for all models that pass both tests."""
        [client], [models] = clients, inbox.vectors
        num_near = max(1, round_down(self.rho * len(models)))
        near = distances(x, inbox)[0].argsort(stable=True)[:num_near].tolist()
        batch = client.batch()
        losses = {place: _comparable(batch.loss(models[place])) for place in near}
        own_loss = _comparable(batch.loss(x[0]))
        passed = [place for place in near if losses[place] <= own_loss] or [min(near, key=losses.__getitem__)]
        accepted = [[place in passed and losses[place] < inf for place in range(len(models))]]
        return equal_shares(inbox, torch.tensor(accepted, device=x.device), 1 - self.alpha)


def _comparable(loss: float) -> float:
    """Return the loss, or infinity instead of NaN, so that losses can be compared."""
    return inf if isnan(loss) else loss
