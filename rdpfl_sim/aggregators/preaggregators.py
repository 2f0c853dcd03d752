"""Pre-aggregators, which replace messages with new rows before aggregation.

A pre-aggregator takes u (n, d), whose n >= 1 rows are messages, and returns new rows (k, d), k >= 1. Like
aggregators, pre-aggregators return finite values for finite messages. The order of the messages affects only
the order of the new rows. Pre-aggregators that mix rows stay in the coordinate-wise hull of the rows. Those
that clip stay in the hull of the rows and zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from typing import Annotated, Any, TypeVar, cast

import torch
from torch import Tensor

from rdpfl_sim.aggregators.aggregator import pre_aggregator, weighting_pre_aggregator
from rdpfl_sim.aggregators.weighting import Byzantine, equal_shares, least, num_trusted
from rdpfl_sim.components.options import Count, Doc, Positive
from rdpfl_sim.vectors import norms, squared_distances

T = TypeVar("T", bound=Callable[..., Tensor])

_NUM_HASHED = 256  # entries of a message in its hash, in addition to the sum of all


@weighting_pre_aggregator
def nnm(u: Tensor, *, byzantine: Byzantine = 0.3) -> Tensor:
    """For each row, the mean of its n - f nearest rows, including itself, f = ceil(byzantine n).

    Nearest-neighbour mixing (Allouah et al. 2023). Rows that tie with the last one included are included too.
    """
    return equal_shares(least(squared_distances(u), num_trusted(len(u), byzantine)))


@weighting_pre_aggregator
def bucketing(
    u: Tensor, *, size: Annotated[Count, Doc("s, messages per bucket; the last may have fewer")] = 2
) -> Tensor:
    """The means of random buckets of `size` rows each.

    Karimireddy, He and Jaggi 2022. The shuffle depends only on the messages: rows are sorted by a hash of
    their bits. It differs between rounds, is the same when a run is repeated, and does not depend on the
    order of the rows.
    """
    n, d = u.shape
    # Hash some entries and the integer sum of all (modulo 2^32). Unlike a sum of floats, it does not depend
    # on the order of summation.
    bits = u.contiguous().view(torch.int32)
    sums = bits.sum(dim=1, keepdim=True, dtype=torch.int32)
    excerpts = torch.cat([bits[:, :: -(-d // _NUM_HASHED)], sums], dim=1).numpy(force=True)
    digests = [blake2b(excerpt.tobytes()).digest() for excerpt in excerpts]
    shuffled = sorted(range(n), key=digests.__getitem__)
    place = torch.empty(n, dtype=torch.int64)
    place[shuffled] = torch.arange(n)
    bucket = torch.arange(-(-n // size)).unsqueeze(1)
    return equal_shares(place // size == bucket).to(u.device)


def _scaling_pre_aggregator(factors: T) -> T:
    """Register a pre-aggregator that scales the rows; the function returns the factors (n,), float64."""

    @wraps(factors)
    def function(u: Tensor, **options: Any) -> Tensor:
        return u * factors(u, **options).to(u).unsqueeze(1)

    decorate = pre_aggregator(weights=lambda u, **options: factors(u, **options).diag())
    return decorate(cast("T", function))


@_scaling_pre_aggregator
def clipping(u: Tensor, *, max_norm: Annotated[Positive, Doc("c, the maximum norm")] = 2.0) -> Tensor:
    """The rows, with longer ones scaled down to the norm c."""
    return _clip_factors(norms(u), max_norm)


@_scaling_pre_aggregator
def arc(u: Tensor, *, byzantine: Byzantine = 0.3) -> Tensor:
    """The rows, with the longest scaled down to the norm of the next longest row.

    Adaptive robust clipping (Allouah et al. 2025) scales floor(2 f (n - f) / n) rows, f = ceil(byzantine n).
    """
    n, trusted = len(u), num_trusted(len(u), byzantine)
    num_clipped = 2 * (n - trusted) * trusted // n
    lengths = norms(u)
    return _clip_factors(lengths, lengths.kthvalue(n - num_clipped).values.item())


def _clip_factors(lengths: Tensor, limit: float) -> Tensor:
    return torch.where(lengths > limit, limit / lengths, 1.0)
