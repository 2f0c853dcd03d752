"""D-PSGD: gossip averaging.

Lian, Zhang, Zhang, Hsieh, Zhang and Liu, "Can Decentralized Algorithms Outperform Centralized Algorithms?",
NeurIPS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rdpfl_sim.maths.batched import column, norms
from rdpfl_sim.methods import base
from rdpfl_sim.methods.batching import Outcome, in_groups
from rdpfl_sim.methods.exchange import Received
from rdpfl_sim.methods.gossip import Gossip, finite, metropolis
from rdpfl_sim.methods.registry import method


@method
class Dpsgd(Gossip):
    """w <- sum_j W_ij x_j: the average of all trained models around, with Metropolis weights (D-PSGD).

    The paper averages after every SGD step, training.local_steps = 1; with more it is local SGD.
    """

    def __init__(self, settings: base.Settings) -> None:
        pass

    def shares(self, x: Tensor, received: Sequence[Received], home: base.Home) -> list[float]:
        """Metropolis weights."""
        return metropolis(received, home)

    def update_together(self, cases: Sequence[base.Case]) -> list[Outcome]:
        """Many clients: those with equally many messages at once."""
        return in_groups(self, cases, lambda case: True, self._update_alike)

    def _update_alike(self, cases: Sequence[base.Case]) -> list[Outcome]:
        """As `update`, with a row for each client."""
        x = torch.stack([case.own.w_tilde for case in cases])
        shares = [self.shares(case.own.w_tilde, case.received, case.home) for case in cases]
        mixed = x * column([max(0.0, 1.0 - sum(row)) for row in shares], x)
        senders = zip(*(case.received for case in cases), strict=True)
        for messages, given in zip(senders, zip(*shares, strict=True), strict=True):
            mixed += torch.stack([message.vector for message in messages]).mul_(column(given, x))
        sound = norms(x).isfinite()
        mixed = torch.where(sound.unsqueeze(1), finite(mixed), x)
        trained = x - torch.stack([case.state.w for case in cases])
        moved, by_training = torch.stack([norms(mixed - x), norms(trained)]).tolist()
        accepted = [
            sum(share > 0 for share in row) if yes else 0
            for row, yes in zip(shares, sound.tolist(), strict=True)
        ]
        return [
            (
                base.State(w.clone()),
                {"num_accepted": num, "moved": far, "neighbour_share": base.neighbour_share(far, own)},
            )
            for w, num, far, own in zip(mixed, accepted, moved, by_training, strict=True)
        ]
