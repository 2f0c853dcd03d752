"""The anchored estimator: what neighbours say, held near what the client itself has found.

R-DPFL's own threshold is a mean of past deviations, which whoever sends the messages decides: a constant
attack raises it until it fits through. Here the measure is the client's own update, which nobody else writes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rdpfl_sim.maths.combining import Aggregator, aggregate
from rdpfl_sim.maths.estimator import LARGEST

ENOUGH = 3
"""Of fewer messages no aggregator can tell which one is false; the own update is one more."""


class Anchored(NamedTuple):
    """The neighbourhood direction, and how many messages were too far away."""

    d: Tensor
    num_clipped: int


def anchored(u: Tensor, messages: Tensor, radius: float, aggregator: Aggregator) -> Anchored:
    """RobustAgg_j {u + Clip(u_j - u; radius)} for the messages u_j (n, d), with u among them if n < 3.

    >>> from rdpfl_sim.maths.aggregators import mean
    >>> anchored(torch.tensor([0.0, 0.0]), torch.tensor([[3.0, 4.0]] * 3), 1.0, mean).d
    tensor([0.6000, 0.8000])
    """
    deviations = messages.clamp(-LARGEST, LARGEST) - u
    lengths = torch.linalg.vector_norm(deviations, dim=1, dtype=torch.float64)
    far = lengths > radius
    held = deviations.mul_(torch.where(far, radius / lengths, 1.0).to(u.dtype).unsqueeze(1)).add_(u)
    if len(held) < ENOUGH:
        held = torch.cat([held, u.unsqueeze(0)])
    return Anchored(aggregate(aggregator, held, u), int(far.sum()))
