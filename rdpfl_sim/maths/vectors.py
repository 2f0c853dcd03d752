"""The vector operations of R-DPFL: norm, clip, prediction coefficient, adaptive threshold.

Norms and inner products accumulate in float64: a hostile message may hold 1e38, whose square is
infinite in float32, and a clip by an infinite norm would return NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 2.0**100
"""Largest entry of an aggregate, so that the difference of two is finite in float32."""


def norm(v: Tensor) -> float:
    """Return |v|_2, finite for every finite v."""
    return float(torch.linalg.vector_norm(v, dtype=torch.float64))


def clip(v: Tensor, limit: float, length: float | None = None) -> tuple[Tensor, bool]:
    """Return Clip(v; limit) = v min{1, limit / |v|}, and whether the limit was active (Section IV-C).

    `length` is |v|, if the caller has it.

    >>> clip(torch.tensor([3.0, 4.0]), 1.0)
    (tensor([0.6000, 0.8000]), True)
    """
    if length is None:
        length = norm(v)
    if length <= limit:
        return v, False
    return v * (limit / length), True


def clip_around(u: Tensor, messages: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return u + Clip(u_j - u; radius) for the messages u_j (n, d), and the factors (n,) that shrink them.

    This is the clipping of ClippedGossip (He, Karimireddy and Jaggi 2022), here of directions.

    >>> clip_around(torch.tensor([0.0, 0.0]), torch.tensor([[3.0, 4.0], [0.0, 0.5]]), 1.0)
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.5000]]), tensor([0.2000, 1.0000]))
    """
    deviations = messages.clamp(-LARGEST, LARGEST) - u
    lengths = torch.linalg.vector_norm(deviations, dim=1, dtype=torch.float64)
    factors = torch.where(lengths > radius, radius / lengths, 1.0).to(u.dtype)
    return deviations.mul_(factors.unsqueeze(1)).add_(u), factors


def bb_coefficient(s: Tensor, y: Tensor, epsilon: float, limit: float) -> float:
    """Return beta = <s, y> / (|s|^2 + epsilon), clamped to [-limit, limit] (eq. beta_def).

    >>> bb_coefficient(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 4.0]), epsilon=0.0, limit=10.0)
    3.0
    """
    s, y = s.double(), y.double()
    beta = float(torch.dot(s, y)) / (float(torch.dot(s, s)) + epsilon)
    return max(-limit, min(limit, beta))


def next_threshold(tau: float, delta_norm: float, alpha: float, c: float) -> float:
    """Return tau^t = alpha tau^{t-1} + (1 - alpha) c |Delta| (eq. tau_update).

    >>> next_threshold(tau=1.0, delta_norm=2.0, alpha=0.5, c=1.5)
    2.0
    """
    return alpha * tau + (1 - alpha) * c * delta_norm
