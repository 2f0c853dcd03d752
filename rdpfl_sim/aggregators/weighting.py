"""Shared parts of aggregators: the number of trusted messages, least scores and weighted sums."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, TypeAlias

from torch import Tensor

from rdpfl_sim.components.options import SLACK, Doc, Fraction, round_up
from rdpfl_sim.vectors import clamp_finite

Byzantine: TypeAlias = Annotated[Fraction, Doc("assumed fraction of Byzantine messages, rounded up")]


def num_trusted(n: int, byzantine: float) -> int:
    """Return n - f for f = ceil(byzantine n), but at least 1."""
    return max(1, n - round_up(byzantine * n))


def least(scores: Tensor, num: int, slack: float = SLACK) -> Tensor:
    """Return a mask of the `num` smallest values along the last dimension, with ties for the last place."""
    return scores <= scores.kthvalue(num, dim=-1, keepdim=True).values * (1 + slack)


def equal_shares(kept: Tensor) -> Tensor:
    """Return float64 weights that average the kept rows along the last dimension."""
    kept = kept.double()
    return kept / kept.sum(dim=-1, keepdim=True)


def weighted_sum(w: Tensor, u: Tensor) -> Tensor:
    """Return sum_i w_i u_i for weights (n,), or for each row of weights (m, n).

    The weights are not negative and add up to at most 1, so only rounding errors can cause an overflow.
    """
    return without_overflow(w.to(u) @ u)


def without_overflow(x: Tensor) -> Tensor:
    """Return x; entries that overflowed become the largest number of their type."""
    # The sum is finite only if all entries are, and is faster than the clamp. False alarms are harmless.
    return x if isfinite(x.sum()) else clamp_finite(x)
