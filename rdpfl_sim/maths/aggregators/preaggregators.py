"""Pre-aggregators: what is done to messages before they are aggregated.

A pre-aggregator takes u (n, d), whose n >= 1 rows are messages, and returns new rows (m, d), m >= 1. Like
aggregators they return finite values for finite messages, and the order of the rows does not matter: the
new rows are the same, perhaps in another order. What mixes stays in the coordinate-wise hull of the rows;
what clips, in the hull of the rows and zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

import torch
from torch import Tensor

from rdpfl_sim.components.options import Count, Doc, Positive
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.maths.aggregators.selection import least
from rdpfl_sim.maths.aggregators.weighting import (
    Byzantine,
    equal_shares,
    num_trusted,
    weighted_sum,
)
from rdpfl_sim.maths.distances import norms, squared_distances


@dataclass(frozen=True, kw_only=True)
class PreAggregatorFacts(Facts):
    """Metadata of a pre-aggregator, set by its decorator."""

    weights: Callable[..., Tensor] | None = None
    """The weights (m, n), float64, of the n messages in each of the m new rows; None if they are unknown."""


PRE_AGGREGATORS = Registry("pre_aggregator", PreAggregatorFacts)
pre_aggregator = PRE_AGGREGATORS.register

_NUM_HASHED = 256  # entries of a message that make up its hash, beside the sum of all


def nnm_weights(u: Tensor, byzantine: float) -> Tensor:
    """Return the weights (n, n), float64, of the rows in each new row."""
    return equal_shares(least(squared_distances(u), num_trusted(len(u), byzantine)))


@pre_aggregator(weights=nnm_weights)
def nnm(u: Tensor, *, byzantine: Byzantine = 0.3) -> Tensor:
    """Each row replaced by the mean of its n - f nearest rows, itself among them, f = ceil(byzantine n).

    Nearest-neighbour mixing (Allouah et al. 2023). Rows that tie with the last one counted count too.
    """
    return weighted_sum(nnm_weights(u, byzantine), u)


def bucketing_weights(u: Tensor, size: int) -> Tensor:
    """Return the weights (ceil(n / size), n), float64, of the rows in each bucket."""
    n, d = u.shape
    # For the hash some entries, and a sum of all as whole numbers (modulo 2^32): unlike a sum of floats it is
    # the same in whatever order it is made.
    bits = u.contiguous().view(torch.int32)
    sums = bits.sum(dim=1, keepdim=True, dtype=torch.int32)
    excerpts = torch.cat([bits[:, :: -(-d // _NUM_HASHED)], sums], dim=1).numpy(force=True)
    digests = [blake2b(excerpt.tobytes()).digest() for excerpt in excerpts]
    shuffled = sorted(range(n), key=digests.__getitem__)
    place = torch.empty(n, dtype=torch.int64)
    place[shuffled] = torch.arange(n)
    bucket = torch.arange(-(-n // size)).unsqueeze(1)
    return equal_shares(place // size == bucket).to(u.device)


@pre_aggregator(weights=bucketing_weights)
def bucketing(
    u: Tensor, *, size: Annotated[Count, Doc("s, messages per bucket; the last may have fewer")] = 2
) -> Tensor:
    """The means of random buckets of `size` rows each.

    Karimireddy, He and Jaggi 2022. The shuffle follows from the messages: rows are sorted by a hash
    of their bits. It differs from round to round, is the same when a run is repeated, and does not depend on
    the order of the rows.
    """
    return weighted_sum(bucketing_weights(u, size), u)


def clipping_scales(u: Tensor, max_norm: float) -> Tensor:
    """Return the factors (n,), float64, of static clipping."""
    return _clip_factors(norms(u), max_norm)


@pre_aggregator(weights=lambda u, max_norm: clipping_scales(u, max_norm).diag())
def clipping(
    u: Tensor, *, max_norm: Annotated[Positive, Doc("c, the largest norm that is kept")] = 2.0
) -> Tensor:
    """The rows, scaled down to the norm c where they are longer."""
    return _scaled(u, clipping_scales(u, max_norm))


def arc_scales(u: Tensor, byzantine: float) -> Tensor:
    """Return the factors (n,), float64, of adaptive robust clipping."""
    n = len(u)
    trusted = num_trusted(n, byzantine)
    num_clipped = 2 * (n - trusted) * trusted // n
    lengths = norms(u)
    return _clip_factors(lengths, lengths.kthvalue(n - num_clipped).values.item())


@pre_aggregator(weights=lambda u, byzantine: arc_scales(u, byzantine).diag())
def arc(u: Tensor, *, byzantine: Byzantine = 0.3) -> Tensor:
    """The floor(2 f (n - f) / n) longest rows, scaled down to the norm of the next, f = ceil(byzantine n).

    Adaptive robust clipping (Allouah et al. 2025).
    """
    return _scaled(u, arc_scales(u, byzantine))


def _clip_factors(lengths: Tensor, limit: float) -> Tensor:
    return torch.where(lengths > limit, limit / lengths, 1.0)


def _scaled(u: Tensor, factors: Tensor) -> Tensor:
    return u * factors.to(u).unsqueeze(1)
