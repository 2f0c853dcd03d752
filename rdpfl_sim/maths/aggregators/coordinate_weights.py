"""Message weights of aggregators that work on one coordinate at a time.

The weight of a message is its mean over the coordinates, or over 4096 evenly spaced ones if there are more.
Messages with equal values share their weight, so that it does not depend on their order.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MAX_COORDINATES = 4096  # of as many random ones, a weight's standard error would be at most 0.008


def band_weights(u: Tensor, low: int, high: int) -> Tensor:
    """Return the weights in the sum of the order statistics low, ..., high - 1 of each coordinate."""
    values = sampled_coordinates(u)
    place = torch.arange(len(u), device=u.device)
    in_band = ((place >= low) & (place < high)).double()
    return average_over_coordinates(values, values.sort(dim=1).values, in_band.expand_as(values))


def sampled_coordinates(u: Tensor) -> Tensor:
    """Return the coordinates that count as rows, (at most 4096, n)."""
    d = u.shape[1]
    if d > _MAX_COORDINATES:
        u = u[:, torch.arange(_MAX_COORDINATES, device=u.device) * d // _MAX_COORDINATES]
    return u.T.contiguous()


def average_over_coordinates(values: Tensor, in_order: Tensor, weights: Tensor) -> Tensor:
    """Return the mean weight of each column, given the weights of the order statistics of each row.

    The values that equal a given one are the order statistics first, ..., last - 1; each gets its share.
    """
    first = torch.searchsorted(in_order, values)
    last = torch.searchsorted(in_order, values, right=True)
    sums = torch.nn.functional.pad(weights.cumsum(dim=1), (1, 0))
    return ((sums.gather(1, last) - sums.gather(1, first)) / (last - first)).mean(dim=0)
