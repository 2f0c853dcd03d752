"""How much each message counted: the weight with which each row of u entered its aggregate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rdpfl_sim.maths.aggregators import (
    Aggregator,
    geometric_median,
    krum,
    krum_weights,
    mean,
    median,
    multi_krum,
    multi_krum_weights,
    num_trimmed,
    trimmed_mean,
    weiszfeld,
)

_MAX_COORDINATES = 4096  # of as many random ones, a weight's standard error would be at most 0.008


def influence(aggregator: Aggregator, u: Tensor) -> Tensor | None:
    """The weights (n,), float64, of the rows of u (n, d) in `aggregator(u)`; None if it is not one of ours.

    They are not negative and add up to 1. Where the aggregator chooses at each coordinate, a row's weight is
    its mean over the coordinates, or over 4096 evenly spaced ones if there are more; rows with equal values
    share their weight, so that it does not depend on the order of the rows.
    """
    function, options = (
        (aggregator.func, aggregator.keywords) if isinstance(aggregator, partial) else (aggregator, {})
    )
    weights = _WEIGHTS.get(function)
    return None if weights is None else weights(u, **{**(function.__kwdefaults__ or {}), **options})


def _mean(u: Tensor) -> Tensor:
    return torch.full((len(u),), 1 / len(u), dtype=torch.float64, device=u.device)


def _median(u: Tensor) -> Tensor:
    return _band(u, (len(u) - 1) // 2)


def _trimmed_mean(u: Tensor, trim: float) -> Tensor:
    return _band(u, num_trimmed(len(u), trim))


def _band(u: Tensor, cut: int) -> Tensor:
    """The weights in the mean of the order statistics cut, ..., n - cut - 1 of each coordinate.

    The values that equal a given one are the order statistics first, ..., last - 1; each gets its share of as
    many of them as are in the band.
    """
    n, d = u.shape
    if d > _MAX_COORDINATES:
        u = u[:, torch.arange(_MAX_COORDINATES, device=u.device) * d // _MAX_COORDINATES]
    values = u.T.contiguous()
    in_order = values.sort(dim=1).values
    first = torch.searchsorted(in_order, values)
    last = torch.searchsorted(in_order, values, right=True)
    num_in_band = (last.clamp(max=n - cut) - first.clamp(min=cut)).clamp(min=0)
    return (num_in_band.double() / (last - first)).mean(dim=0) / (n - 2 * cut)


def _geometric_median(u: Tensor, iterations: int, tolerance: float) -> Tensor:
    """The weights of Weiszfeld's iteration; what is left to its starting point belongs to the rows there."""
    w, at_c = weiszfeld(u, median(u), iterations, tolerance)
    rest = max(0.0, 1 - w.sum()) / max(1, at_c.sum())
    return torch.from_numpy(w + rest * at_c).to(u.device)


_WEIGHTS: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    mean: _mean,
    median: _median,
    trimmed_mean: _trimmed_mean,
    geometric_median: _geometric_median,
    krum: krum_weights,
    multi_krum: multi_krum_weights,
}
