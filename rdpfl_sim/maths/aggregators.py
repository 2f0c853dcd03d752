"""Robust aggregation: one vector from the messages that arrived.

An aggregator takes u (n, d), float32, whose n >= 1 rows are messages, and returns a new vector (d,).
All of them

- are defined for every n >= 1, one and two messages included;
- return finite values for finite messages, entries near the largest float32 included; NaN and infinity never
  arrive here, because mailboxes reject them;
- do not depend on the order of the rows, up to rounding (the geometric median: up to its tolerance);
- stay inside the coordinate-wise hull of the rows, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, sqrt
from typing import Annotated, TypeAlias

import numpy as np
import torch
from annotated_types import Lt
from numpy.typing import NDArray
from torch import Tensor

from rdpfl_sim.maths.distances import blocks, squared_distances
from rdpfl_sim.maths.sorting import band_mean
from rdpfl_sim.options import Count, Doc, Fraction, NonNegative, Positive, PositiveFraction

Aggregator: TypeAlias = Callable[[Tensor], Tensor]

_SLACK = 1e-9  # for float64 rounding: 0.07 * 100 is 7.000000000000001, and still means 7 messages of 100
_COINCIDENT = 1e-6  # of the median distance: well above the rounding of a difference of squares in float64


def mean(u: Tensor) -> Tensor:
    """The mean of the rows; one message can move it anywhere."""
    return band_mean(u, 0, len(u))


def median(u: Tensor) -> Tensor:
    """The coordinate-wise median; for an even n the mean of the two middle values (Yin et al. 2018)."""
    return band_mean(u, (len(u) - 1) // 2, len(u) // 2 + 1)


def trimmed_mean(
    u: Tensor,
    *,
    trim: Annotated[
        NonNegative, Lt(0.5), Doc("cut from each end, as a fraction of what arrived, rounded down")
    ] = 0.3,
) -> Tensor:
    """The coordinate-wise mean without the floor(trim n) values at each end (Yin et al. 2018)."""
    cut = num_trimmed(len(u), trim)
    return band_mean(u, cut, len(u) - cut)


def num_trimmed(n: int, trim: float) -> int:
    """How many of n values are cut from each end; at least one is left."""
    return min(floor(trim * n + _SLACK), (n - 1) // 2)


def geometric_median(
    u: Tensor,
    *,
    iterations: Annotated[Count, Doc("at most this many Weiszfeld steps")] = 100,
    tolerance: Annotated[Positive, Doc("stop at a step this short, relative to the median distance")] = 1e-6,
) -> Tensor:
    """The point y with the least sum of distances to the rows, argmin_y sum_i |u_i - y|.

    Weiszfeld's iteration y <- sum_i w_i u_i, w_i proportional to 1 / |u_i - y|, from the coordinate-wise
    median c; where y meets a row, the step of Vardi and Zhang (2000).
    """
    c = median(u)
    w, _ = weiszfeld(u, c, iterations, tolerance)
    return torch.add(_weighted_sum(torch.from_numpy(w), u), c, alpha=1 - float(w.sum()))


def weiszfeld(
    u: Tensor, c: Tensor, iterations: int, tolerance: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The weights w (n,) with which y = c + sum_i w_i (u_i - c) is the geometric median, and the rows at c.

    With G_ij = <u_i - c, u_j - c> the distances are |u_i - y|^2 = G_ii - 2 (G w)_i + w.G w, so that a step
    costs n^2 instead of n d. A minority of rows, however far away, cannot carry the coordinate-wise median c
    away from the others, so their distances do not cancel. sum_i w_i < 1 only if there are rows at c.
    """
    gram = _gram(u, c)
    squares = gram.diagonal()
    distances = np.sqrt(squares)
    scale = np.sort(distances)[(len(u) - 1) // 2]  # the lower of two, so that no minority can make it large
    at_c = distances <= _COINCIDENT * scale
    w = np.zeros(len(u))
    if scale == 0:
        return w, at_c  # at least half of the rows equal c, which makes it a minimum
    for _ in range(iterations):
        met = distances <= _COINCIDENT * scale
        pull = ~met / np.maximum(distances, _COINCIDENT * scale)
        step = pull / pull.sum() - w
        length = sqrt(max(step @ gram @ step, 0.0))
        # Each row that y has met holds it with force 1 against the joint force of the others.
        force = max(length * pull.sum(), 1e-9)
        share = 1 - min(1.0, met.sum() / force)
        w = w + share * step
        if share * length <= tolerance * scale:
            break
        product = gram @ w
        distances = np.sqrt(np.maximum(squares - 2 * product + w @ product, 0))
    return w, at_c


def krum(
    u: Tensor,
    *,
    byzantine: Annotated[Fraction, Doc("assumed Byzantine fraction of what arrived, rounded up")] = 0.3,
) -> Tensor:
    """The row with the least sum of squared distances to its n - f - 2 nearest others, f = ceil(byzantine n).

    Blanchard et al. 2017. f is rounded up because three liars among nine are more than 30 %. At least one
    neighbour counts. Rows with equal scores are averaged: when one neighbour counts, the two closest rows
    always tie, and the result should not depend on who has the smaller number.
    """
    return _weighted_sum(krum_weights(u, byzantine), u)


def multi_krum(
    u: Tensor,
    *,
    byzantine: Annotated[Fraction, Doc("assumed Byzantine fraction of what arrived, rounded up")] = 0.3,
    keep: Annotated[
        PositiveFraction | None, Doc("fraction of what arrived to average, rounded up; by default n - f of n")
    ] = None,
) -> Tensor:
    """The mean of the rows with the least Krum scores: n - f of them, or the fraction `keep`.

    Blanchard et al. 2017. Rows that tie with the last one kept are kept too.
    """
    return _weighted_sum(multi_krum_weights(u, byzantine, keep), u)


def multi_krum_weights(u: Tensor, byzantine: float, keep: float | None) -> Tensor:
    """The weights (n,), float64, with which multi-Krum averages the rows."""
    n = len(u)
    num_kept = n - _round_up(byzantine * n) if keep is None else _round_up(keep * n)
    return krum_weights(u, byzantine, max(1, num_kept))


def krum_weights(u: Tensor, byzantine: float, num_kept: int = 1) -> Tensor:
    """The weights (n,), float64, that average the rows with the least Krum scores, and those that tie."""
    n = len(u)
    num_neighbours = max(1, n - _round_up(byzantine * n) - 2)
    in_order = squared_distances(u).sort(dim=1).values  # column 0: the distance of each row to itself
    scores = in_order[:, 1 : 1 + num_neighbours].sum(dim=1)
    kept = (scores <= scores.kthvalue(num_kept).values * (1 + _SLACK)).double()
    return kept / kept.sum()


def _gram(u: Tensor, c: Tensor) -> NDArray[np.float64]:
    """G_ij = <u_i - c, u_j - c>, (n, n); in numpy, whose calls on small arrays cost less than torch's."""
    result = torch.zeros(len(u), len(u), dtype=torch.float64, device=u.device)
    for rows, centre in blocks(u, c):
        centred = rows.double() - centre
        result += centred @ centred.T
    return result.numpy(force=True)


def _weighted_sum(w: Tensor, u: Tensor) -> Tensor:
    """sum_i w_i u_i for weights that add up to at most 1: only rounding can overflow, hence the clamp."""
    limit = torch.finfo(u.dtype).max
    return (w.to(u) @ u).clamp_(-limit, limit)


def _round_up(count: float) -> int:
    return ceil(count - _SLACK)


AGGREGATORS: dict[str, Callable[..., Tensor]] = {
    "mean": mean,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "geometric_median": geometric_median,
    "krum": krum,
    "multi_krum": multi_krum,
}
