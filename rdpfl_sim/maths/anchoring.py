"""The anchored estimator: what neighbours say, held near what the client itself has found.

The paper's threshold is a mean of past deviations, which whoever sends the messages decides: a constant
attack raises it until it fits through. Here the measure is the client's own update, which nobody else writes.
Clipping around the own vector is that of He, Karimireddy and Jaggi 2022 (ClippedGossip), on directions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rdpfl_sim.maths.vectors import LARGEST


def hold_near(u: Tensor, messages: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """u + Clip(u_j - u; radius) for the messages u_j (n, d), and the factors (n,) by which that shrinks them.

    >>> hold_near(torch.tensor([0.0, 0.0]), torch.tensor([[3.0, 4.0], [0.0, 0.5]]), 1.0)
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.5000]]), tensor([0.2000, 1.0000]))
    """
    deviations = messages.clamp(-LARGEST, LARGEST) - u
    lengths = torch.linalg.vector_norm(deviations, dim=1, dtype=torch.float64)
    factors = torch.where(lengths > radius, radius / lengths, 1.0).to(u.dtype)
    return deviations.mul_(factors.unsqueeze(1)).add_(u), factors
