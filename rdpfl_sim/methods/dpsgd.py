"""D-PSGD: gossip averaging.

Lian, Zhang, Zhang, Hsieh, Zhang and Liu, "Can Decentralized Algorithms Outperform Centralized Algorithms?",
NeurIPS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rdpfl_sim.methods.base import ClientView, Inbox, RunInfo, method
from rdpfl_sim.methods.gossip import Gossip, metropolis


@method
class Dpsgd(Gossip):
    """w <- sum_j W_ij x_j: the average of own and received models with Metropolis weights (D-PSGD).

    The paper averages after every SGD step (training.local_steps = 1). With more steps, this is local SGD.
    """

    def __init__(self, run: RunInfo) -> None:
        pass

    def shares(self, x: Tensor, inbox: Inbox, clients: Sequence[ClientView]) -> Tensor:
        """Return Metropolis weights."""
        return metropolis(inbox, clients)
