"""How much each message counted: the weight with which each row of u entered its aggregate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from rdpfl_sim.maths.aggregators.coordinatewise import meamed, mean, median, num_trimmed, trimmed_mean
from rdpfl_sim.maths.aggregators.iterative import (
    centred_clipping,
    centred_clipping_weights,
    geometric_median,
    weiszfeld,
)
from rdpfl_sim.maths.aggregators.preaggregators import (
    Chain,
    arc,
    arc_scales,
    bucketing,
    bucketing_weights,
    clipping,
    clipping_scales,
    nnm,
    nnm_weights,
)
from rdpfl_sim.maths.aggregators.selection import (
    caf,
    caf_weights,
    krum,
    krum_weights,
    mda,
    mda_weights,
    monna,
    monna_weights,
    multi_krum,
    multi_krum_weights,
    smea,
    smea_weights,
)
from rdpfl_sim.maths.aggregators.weighting import Aggregator, num_trusted
from rdpfl_sim.rounding import round_up

_MAX_COORDINATES = 4096  # of as many random ones, a weight's standard error would be at most 0.008


def influence(aggregator: Aggregator, u: Tensor, own: Tensor) -> Tensor | None:
    """The weights (n,), float64, of the rows of u (n, d) in `aggregate(aggregator, u, own)`.

    They are not negative and add up to 1; what clipping takes away counts for nobody. Where the aggregator
    chooses at each coordinate, a row's weight is its mean over the coordinates, or over 4096 evenly spaced
    ones if there are more; rows with equal values share their weight, so that it does not depend on the order
    of the rows. None if the aggregator, or a part of it, is not one of ours.
    """
    if isinstance(aggregator, Chain):
        weights = _chain(aggregator, u, own)
    else:
        function, options = _parts(aggregator)
        if function not in _WEIGHTS:
            return None
        arguments = (u, own) if function is monna else (u,)
        weights = _WEIGHTS[function](*arguments, **options)
    return None if weights is None else weights / weights.sum()


def trims_less(aggregator: Aggregator, n: int) -> bool:
    """Whether a trimmed mean of n messages cuts fewer than ceil(trim n) per side, because n is too small."""
    if isinstance(aggregator, Chain):
        for pre_aggregator in aggregator.before:
            n = len(pre_aggregator(torch.zeros(n, 1)))
        return trims_less(aggregator.last, n)
    function, options = _parts(aggregator)
    return function is trimmed_mean and num_trimmed(n, options["trim"]) < round_up(options["trim"] * n)


def _chain(chain: Chain, u: Tensor, own: Tensor) -> Tensor | None:
    """The weights of the last aggregator, traced back through what each pre-aggregator mixed."""
    mixtures = []
    for pre_aggregator in chain.before:
        function, options = _parts(pre_aggregator)
        if function not in _MIXTURES:
            return None
        mixtures.append(_MIXTURES[function](u, **options))
        u = pre_aggregator(u)
    weights = influence(chain.last, u, own)
    for mixture in reversed(mixtures):
        weights = None if weights is None else weights @ mixture
    return weights


def _parts(component: Callable[..., Any]) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """A component's function, and all of its options."""
    function, options = (
        (component.func, component.keywords) if isinstance(component, partial) else (component, {})
    )
    return function, {**(getattr(function, "__kwdefaults__", None) or {}), **options}


def _mean(u: Tensor) -> Tensor:
    return torch.full((len(u),), 1 / len(u), dtype=torch.float64, device=u.device)


def _median(u: Tensor) -> Tensor:
    return _band(u, (len(u) - 1) // 2)


def _trimmed_mean(u: Tensor, trim: float) -> Tensor:
    return _band(u, num_trimmed(len(u), trim))


def _band(u: Tensor, cut: int) -> Tensor:
    """The weights in the mean of the order statistics cut, ..., n - cut - 1 of each coordinate."""
    values = _sampled(u)
    place = torch.arange(len(u), device=u.device)
    in_band = ((place >= cut) & (place < len(u) - cut)).double()
    return _of_order_statistics(values, values.sort(dim=1).values, in_band.expand_as(values))


def _meamed(u: Tensor, byzantine: float) -> Tensor:
    """The weights in the mean around the median; the classes are those of `coordinatewise.meamed`."""
    n, k = len(u), num_trusted(len(u), byzantine)
    values = _sampled(u).double()
    in_order = values.sort(dim=1).values
    twice_median = in_order[:, (n - 1) // 2, None] + in_order[:, n // 2, None]
    weights = torch.zeros_like(in_order)
    weights[:, :k] = 1
    nearest = in_order[:, :k].clone()
    for begin in range(k, n, k):
        others = in_order[:, begin : begin + k]
        width = others.shape[1]
        share = ((twice_median - (nearest[:, :width] + others)).sign() + 1) / 2
        for earlier in range(0, begin, k):
            weights[:, earlier : earlier + width] *= 1 - share
        weights[:, begin : begin + width] = share
        nearest[:, :width] = torch.lerp(nearest[:, :width], others, share)
    return _of_order_statistics(values, in_order, weights)


def _sampled(u: Tensor) -> Tensor:
    """The coordinates to look at as rows, (at most 4096, n)."""
    d = u.shape[1]
    if d > _MAX_COORDINATES:
        u = u[:, torch.arange(_MAX_COORDINATES, device=u.device) * d // _MAX_COORDINATES]
    return u.T.contiguous()


def _of_order_statistics(values: Tensor, in_order: Tensor, weights: Tensor) -> Tensor:
    """The mean weight of each column of `values`, given the weights of the order statistics of each row.

    The values that equal a given one are the order statistics first, ..., last - 1; each gets its share.
    """
    first = torch.searchsorted(in_order, values)
    last = torch.searchsorted(in_order, values, right=True)
    sums = torch.nn.functional.pad(weights.cumsum(dim=1), (1, 0))
    return ((sums.gather(1, last) - sums.gather(1, first)) / (last - first)).mean(dim=0)


def _geometric_median(u: Tensor, iterations: int, tolerance: float) -> Tensor:
    return torch.from_numpy(weiszfeld(u, iterations, tolerance)).to(u.device)


def _centred_clipping(
    u: Tensor, radius: float | Literal["median"], iterations: int, start: Literal["median", "zero"]
) -> Tensor:
    """The weights in v; what is left to the median belongs to the rows that make it up."""
    c = median(u) if start == "median" else None
    w = torch.from_numpy(centred_clipping_weights(u, c, radius, iterations)).to(u.device)
    return w + (1 - w.sum()).clamp(min=0) * _median(u) if start == "median" else w


def _clipping(u: Tensor, max_norm: float) -> Tensor:
    return clipping_scales(u, max_norm).diag()


def _arc(u: Tensor, byzantine: float) -> Tensor:
    return arc_scales(u, byzantine).diag()


_WEIGHTS: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    mean: _mean,
    median: _median,
    trimmed_mean: _trimmed_mean,
    meamed: _meamed,
    geometric_median: _geometric_median,
    centred_clipping: _centred_clipping,
    krum: krum_weights,
    multi_krum: multi_krum_weights,
    monna: monna_weights,
    mda: mda_weights,
    smea: smea_weights,
    caf: caf_weights,
}
_MIXTURES: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    nnm: nnm_weights,
    bucketing: bucketing_weights,
    clipping: _clipping,
    arc: _arc,
}
