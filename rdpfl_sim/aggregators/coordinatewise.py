"""Aggregators that treat each coordinate separately.

`mean`, `median` and `trimmed_mean` are means of order statistics, which they declare. `aggregate_rows` uses
this to compute many clients together. It calls the functions themselves only after an overflow and for more
than 32 messages.

Message weights are means over the coordinates, or over 4096 evenly spaced ones if there are more.
Messages with equal values share their weight, so that it does not depend on their order.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Lt
from numpy.typing import NDArray
from torch import Tensor

from rdpfl_sim.aggregators.aggregator import aggregator, within_hull
from rdpfl_sim.aggregators.order_statistics import band_mean, sorted_rows
from rdpfl_sim.aggregators.weighting import Byzantine, num_trusted, without_overflow
from rdpfl_sim.components.options import Doc, NonNegative, round_up
from rdpfl_sim.vectors import blocks

_MAX_COORDINATES = 4096  # for a random sample of this size, the standard error of a weight is at most 0.008
_BLOCK = 32768  # coordinates per step of `band_weights`, so that its arrays fit into the cache
_EXACT = 2.0**20  # sums of multiples of 1 / _EXACT are exact


@aggregator(order_statistics=lambda n: (0, n), distance_bound=within_hull)
def mean(u: Tensor) -> Tensor:
    """The mean of the rows. It is not robust: one message can move it anywhere."""
    result = torch.mv(u.T, u.new_full((len(u),), 1 / len(u)))  # limited only by memory bandwidth
    # A cheap test for overflow: the square is finite only if all entries are. False alarms are harmless.
    if math.isfinite(result.dot(result)):
        return result
    return without_overflow((u / len(u)).sum(dim=0))


def middle(n: int) -> tuple[int, int]:
    """Return the band of the one or two middle order statistics of n."""
    return (n - 1) // 2, n // 2 + 1


def median_bound(n: int) -> float:
    """Return the distance bound: per coordinate, n // 2 + 1 messages are at least as far as the median."""
    return math.sqrt(n / (n // 2 + 1))


@aggregator(order_statistics=middle, distance_bound=median_bound)
def median(u: Tensor) -> Tensor:
    """The coordinate-wise median; for even n, the mean of the two middle values (Yin et al. 2018)."""
    return band_mean(u, *middle(len(u)))


def _num_trimmed(n: int, trim: float) -> int:
    """Return min(ceil(trim n), (n - 1) // 2), the number of values removed from each end."""
    return min(round_up(trim * n), (n - 1) // 2)


def _untrimmed(n: int, trim: float) -> tuple[int, int]:
    """Return the band of order statistics of n that are not trimmed."""
    cut = _num_trimmed(n, trim)
    return cut, n - cut


def _trimmed_mean_bound(n: int, trim: float) -> float:
    """Return the bound of a mean of `kept` messages per coordinate: kept |d - u|^2 <= n r^2, by convexity."""
    low, high = _untrimmed(n, trim)
    return math.sqrt(n / (high - low))


@aggregator(
    order_statistics=_untrimmed,
    distance_bound=_trimmed_mean_bound,
    too_few=lambda n, trim: _num_trimmed(n, trim) < round_up(trim * n),
)
def trimmed_mean(
    u: Tensor,
    *,
    trim: Annotated[
        NonNegative, Lt(0.5), Doc("fraction of messages removed from each end, rounded up")
    ] = 0.3,
) -> Tensor:
    """The coordinate-wise mean without the ceil(trim n) values at each end (Yin et al. 2018).

    The number is rounded up, so that trim = 0.3 removes three attackers among nine. At least one value
    remains: of 1, 2 or 4 messages, trim = 0.3 removes one value fewer at each end.
    """
    return band_mean(u, *_untrimmed(len(u), trim))


def _meamed_weights(u: Tensor, byzantine: float) -> Tensor:
    """Return the weights (n,), float64: the derivatives of the mean with respect to the order statistics."""
    values = _sampled_coordinates(u).T.double().contiguous()
    with torch.enable_grad():
        in_order = values.sort(dim=1).values.requires_grad_()
        total = _mean_around_median([*in_order.unbind(dim=1)], num_trusted(len(u), byzantine)).sum()
        (weights,) = torch.autograd.grad(total, in_order)
    return _average_over_coordinates(values, in_order.detach(), weights)


def _meamed_bound(n: int, byzantine: float) -> float:
    """Return the bound of a mean of n - f messages per coordinate; see `_trimmed_mean_bound`."""
    return math.sqrt(n / num_trusted(n, byzantine))


@aggregator(weights=_meamed_weights, distance_bound=_meamed_bound)
def meamed(u: Tensor, *, byzantine: Byzantine = 0.3) -> Tensor:
    """The coordinate-wise mean of the n - f values nearest to the median, f = ceil(byzantine n).

    Mean around median (Xie, Koyejo and Gupta 2018). If two values tie for the last place, one on each side,
    each counts half.
    """
    n = len(u)
    k = num_trusted(n, byzantine)
    smallest, largest = torch.aminmax(u)
    if max(-smallest, largest) <= torch.finfo(u.dtype).max / (2 * n):
        return torch.cat([_mean_around_median(sorted_rows(rows), k) for (rows,) in blocks(u)])
    shrink = 2.0 ** -(1 + n.bit_length())  # a power of two, so exact; no sum of 2 n entries overflows
    parts = [_mean_around_median(sorted_rows(rows * shrink), k) for (rows,) in blocks(u)]
    return without_overflow(torch.cat(parts).div_(shrink))


def _mean_around_median(s: list[Tensor], k: int) -> Tensor:
    """Return the mean of the k order statistics of s that are nearest to the median.

    They are adjacent in the order, so each of the classes s_r, s_{r+k}, s_{r+2k}, ... (r < k) contains
    exactly one of them: the one nearest to the median.
    """
    n = len(s)
    twice_median = s[(n - 1) // 2] + s[n // 2]
    total = torch.zeros_like(twice_median)
    for r in range(k):
        nearest = s[r]
        for other in s[r + k :: k]:
            # The sign is 1 if `other`, the larger or equal value, is nearer, and 0 if both are equally near.
            share = (twice_median - (nearest + other)).sign_().add_(1).mul_(0.5)
            nearest = torch.lerp(nearest, other, share)
        total += nearest
    return total.div_(k)


def band_weights(messages: Tensor, low: int, high: int) -> Tensor:
    """Return the weights (n, m), float64, of messages (n, m, d) in the mean of their order statistics.

    These are the order statistics low, ..., high - 1. The bits of a row do not depend on the other rows.
    """
    n, m, _ = messages.shape
    if (low, high) == (0, m):
        return torch.full((n, m), 1 / m, dtype=torch.float64, device=messages.device)
    values = _sampled_coordinates(messages.transpose(0, 1)).cpu()
    num_clients = max(1, _BLOCK // values.shape[2])
    weights = [_band_frequencies(part, low, high) for part in torch.split(values, num_clients, dim=1)]
    return (torch.cat(weights) / (high - low)).to(messages.device)


def _band_frequencies(values: Tensor, low: int, high: int) -> Tensor:
    """Return the mean over the coordinates of being in the band, (n, m), for the values (m, n, k).

    A value is in the band if it is between the edges of the band. If that applies to more values than the
    band has places, some are tied at an edge and share places.
    """
    m, n, k = values.shape
    columns = values.flatten(1)
    edges = sorted_rows(columns, low, high)
    u, lowest, highest = columns.numpy(), edges[0].numpy(), edges[-1].numpy()
    inside = (u >= lowest) & (u <= highest)
    totals = np.array([[np.count_nonzero(row) for row in rows] for rows in inside.reshape(m, n, k)], float)
    if totals.sum() == n * k * (high - low):
        return torch.from_numpy(totals.T / k)
    tied = np.flatnonzero(inside.sum(axis=0, dtype=np.int32) > high - low)
    client = tied // k
    shares = _shares_of_band(u[:, tied], low, high)
    for total, excess in zip(totals, inside[:, tied] - shares, strict=True):
        total -= np.bincount(client, excess, minlength=n)
    result = torch.from_numpy(totals.T / k)
    # The totals are exact if the shares are fractions of a power of two. Others are added in one fixed order.
    is_exact = np.rint(shares * _EXACT) == shares * _EXACT
    for i in np.unique(client[~is_exact.all(axis=0)]):
        of_client = client == i
        in_band = np.stack([*inside[:, i * k : (i + 1) * k]], axis=1).astype(np.float64)
        in_band[tied[of_client] - i * k] = shares[:, of_client].T
        result[i] = torch.from_numpy(in_band).mean(dim=0)
    return result


def _shares_of_band(u: NDArray[np.floating[Any]], low: int, high: int) -> NDArray[np.float64]:
    """Return the share of each value of u (m, t) in the places low, ..., high - 1 of its sorted column."""
    shares = np.empty(u.shape)
    for share, row in zip(shares, u, strict=True):
        first, last = (u < row).sum(axis=0, dtype=np.int32), (u <= row).sum(axis=0, dtype=np.int32)
        places = np.minimum(last, high) - np.maximum(first, low)
        share[:] = np.maximum(places, 0) / (last - first)
    return shares


def _sampled_coordinates(u: Tensor) -> Tensor:
    """Return u (..., d), or at most 4096 evenly spaced coordinates of it."""
    d = u.shape[-1]
    if d <= _MAX_COORDINATES:
        return u
    places = np.arange(_MAX_COORDINATES) * d // _MAX_COORDINATES
    return torch.from_numpy(np.take(u.numpy(force=True), places, axis=-1)).to(u.device)


def _average_over_coordinates(values: Tensor, in_order: Tensor, weights: Tensor) -> Tensor:
    """Return the mean weight of each column, given the weights of the order statistics of each row.

    Equal values are the order statistics first, ..., last - 1. They share their weight equally.
    """
    first = torch.searchsorted(in_order, values)
    last = torch.searchsorted(in_order, values, right=True)
    sums = torch.nn.functional.pad(weights.cumsum(dim=1), (1, 0))
    return ((sums.gather(1, last) - sums.gather(1, first)) / (last - first)).mean(dim=0)
