"""Aggregators that start at a centre and move it towards the messages; each has a limited influence.

Both stay in the span of the rows, y = c + sum_i w_i (u_i - c), and iterate over the weights w: with G_ij =
<u_i - c, u_j - c>, |u_i - y|^2 = G_ii - 2 (G w)_i + w.G w, so a step costs n^2 instead of n d. The point
c is the coordinate-wise median, or the row nearest to half of the others. A minority of distant rows cannot
move it away from the others, so distances suffer no cancellation.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rdpfl_sim.aggregators.aggregator import aggregator, weighting_aggregator
from rdpfl_sim.aggregators.coordinatewise import band_weights, median, median_bound, middle
from rdpfl_sim.aggregators.weighting import weighted_sum, without_overflow
from rdpfl_sim.components.options import SLACK, Count, Doc, Positive
from rdpfl_sim.vectors import blocks, distances_to, norms, product, squared_distances

_COINCIDENT = 1e-6  # relative to the median distance: well above float64 rounding of a difference of squares
_FAR = 1e3  # relative to the median distance: rounding of its square is still well below the median


@weighting_aggregator()
def geometric_median(
    u: Tensor,
    *,
    iterations: Annotated[Count, Doc("maximum number of Weiszfeld steps")] = 100,
    tolerance: Annotated[Positive, Doc("step length to stop at, relative to the median distance")] = 1e-6,
) -> Tensor:
    """The point y with the least sum of distances to the rows, argmin_y sum_i |u_i - y|.

    Weiszfeld's iteration y <- sum_i w_i u_i, w_i proportional to 1 / |u_i - y|, starts at the row that is
    nearest to half of the others. If y coincides with a row, the step of Vardi and Zhang (2000) is used.
    """
    return torch.from_numpy(_weiszfeld(u, iterations, tolerance)).to(u.device)


def _weiszfeld(u: Tensor, iterations: int, tolerance: float) -> NDArray[np.float64]:
    """Return weights w (n,) that add up to 1, such that sum_i w_i u_i is the geometric median."""
    squares: NDArray[np.float64] = squared_distances(u).numpy(force=True)
    half = np.sort(squares, axis=1)[:, (len(u) - 1) // 2]
    scale = sqrt(half.min())
    starts = half <= half.min() * (1 + SLACK)  # with ties, so that the order of rows does not matter
    w: NDArray[np.float64] = starts / starts.sum()
    if scale == 0:
        return w  # at least half of the rows coincide with y, so it is a minimum
    gram = _gram_around(int(starts.argmax()), u, squares, scale)
    distances = _distances(gram, w)
    for _ in range(iterations):
        met = distances <= _COINCIDENT * scale
        pull = ~met / np.maximum(distances, _COINCIDENT * scale)
        total = pull.sum()
        step = pull / total - w
        length = sqrt(max(float(product(step, product(gram, step))), 0.0))
        # Each row that coincides with y opposes the joint force of the others with force 1.
        share = 1 - min(1.0, np.count_nonzero(met) / max(length * total, 1e-9))
        w = w + share * step
        if share * length <= tolerance * scale:
            break
        distances = _distances(gram, w)
    return w


def _weights_around(
    u: Tensor, c: Tensor | None, radius: float | Literal["median"], iterations: int
) -> NDArray[np.float64]:
    """Return the weights w (n,) such that v = c + sum_i w_i (u_i - c). If c is None, it is zero."""
    w = _clipped_shares((norms(u) if c is None else distances_to(c, u)).numpy(force=True), radius)
    if iterations > 1:
        gram = _gram(u, torch.zeros_like(u[0]) if c is None else c)
        for _ in range(iterations - 1):
            shares = _clipped_shares(_distances(gram, w), radius)
            w = w * (1 - shares.sum()) + shares
    return w


def _centred_clipping_weights(
    u: Tensor, radius: float | Literal["median"], iterations: int, start: Literal["median", "zero"]
) -> Tensor:
    """Return the weights (n,), float64; the weight of the median is divided among the rows that form it."""
    c = median(u) if start == "median" else None
    w = torch.from_numpy(_weights_around(u, c, radius, iterations)).to(u.device)
    if c is None:
        return w
    of_median = band_weights(u.unsqueeze(0), *middle(len(u))).squeeze(0)
    return w + (1 - w.sum()).clamp(min=0) * of_median


def _centred_clipping_bound(m: int, start: str, **options: Any) -> float:
    """Return the distance bound: the median's bound if the iteration starts there, otherwise infinity."""
    return median_bound(m) if start == "median" else inf


@aggregator(weights=_centred_clipping_weights, distance_bound=_centred_clipping_bound)
def centred_clipping(
    u: Tensor,
    *,
    radius: Annotated[
        Positive | Literal["median"],
        Doc("tau; 'median': the median distance of the rows from v in each step"),
    ] = "median",
    iterations: Annotated[Count, Doc("L, number of steps")] = 1,
    start: Annotated[
        Literal["median", "zero"], Doc("initial v: the coordinate-wise median, or zero")
    ] = "median",
) -> Tensor:
    """v <- v + mean_i (u_i - v) min(1, tau / |u_i - v|): no message moves v farther than tau / n.

    Karimireddy, He and Jaggi 2021. Their iteration starts at the aggregate of the previous round; this one
    is stateless. If it starts at zero, v is in the hull of the rows and zero.
    """
    c = median(u) if start == "median" else None
    w = _weights_around(u, c, radius, iterations)
    return weighted_sum(torch.from_numpy(w), u) if c is None else _from_centre(w, u, c)


def _clipped_shares(distances: NDArray[np.float64], radius: float | Literal["median"]) -> NDArray[np.float64]:
    """min(1, tau / |u_i - v|) / n."""
    tau = _lower_median(distances) if radius == "median" else radius
    n = len(distances)
    return np.divide(tau, distances, out=np.ones(n), where=distances > tau) / n


def _from_centre(w: NDArray[np.float64], u: Tensor, c: Tensor) -> Tensor:
    """c + sum_i w_i (u_i - c)."""
    return without_overflow(weighted_sum(torch.from_numpy(w), u).add_(c, alpha=1 - float(w.sum())))


def _lower_median(distances: NDArray[np.float64]) -> float:
    """Return the lower median, which a minority of distances cannot make large."""
    return float(np.sort(distances)[(len(distances) - 1) // 2])


def _distances(gram: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """|u_i - y| for y = c + sum_i w_i (u_i - c)."""
    to_mean = product(gram, w)
    squares: NDArray[np.float64] = gram.diagonal() - 2 * to_mean + product(w, to_mean)
    return np.sqrt(np.maximum(squares, 0))


def _gram_around(row: int, u: Tensor, squares: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """G_ij with a row as c, from the distances |u_i - u_j|^2 unless large ones would cause cancellation."""
    to_row = squares[row]
    if to_row.max() > (_FAR * scale) ** 2:
        return _gram(u, u[row])
    result: NDArray[np.float64] = (to_row[:, None] + to_row - squares) / 2
    return result


def _gram(u: Tensor, c: Tensor) -> NDArray[np.float64]:
    """G_ij = <u_i - c, u_j - c>, (n, n); in numpy, which has less overhead than torch for small arrays."""
    result = torch.zeros(len(u), len(u), dtype=torch.float64, device=u.device)
    for rows, centre in blocks(u, c):
        centred = rows.double().sub_(centre)
        result += centred @ centred.T
    return result.numpy(force=True)
