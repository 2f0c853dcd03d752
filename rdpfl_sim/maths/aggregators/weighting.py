"""What aggregators share: how they are called, how many messages they trust, and sums with weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, TypeAlias

import torch
from torch import Tensor

from rdpfl_sim.components.options import Doc, Fraction
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.rounding import round_up

Aggregator: TypeAlias = Callable[..., Tensor]
"""One vector (d,) from the messages u (n, d), and from the own vector if it is declared with `needs_own`."""

SLACK = 1e-9
"""Tolerance for rounding errors when scores are compared."""

Byzantine: TypeAlias = Annotated[Fraction, Doc("assumed Byzantine fraction of what arrived, rounded up")]


@dataclass(frozen=True, kw_only=True)
class AggregatorFacts(Facts):
    """What the simulator must know about an aggregator."""

    needs_own: bool = False
    """Whether its second argument is the vector of the client itself, (d,)."""
    order_statistics: Callable[..., tuple[int, int]] | None = None
    """(low, high) for n messages and the options, if the aggregate is the mean of the order statistics
    low, ..., high - 1 of each coordinate. Such aggregators are computed for many clients at once."""


AGGREGATORS = Registry("aggregator", AggregatorFacts)
aggregator = AGGREGATORS.register


def aggregate(function: Aggregator, u: Tensor, own: Tensor) -> Tensor:
    """Return the aggregate of the messages u (n, d) for a client whose own vector is `own`."""
    needs_own = getattr(function, "needs_own", False) or AGGREGATORS.facts_of(function).needs_own
    return function(u, own) if needs_own else function(u)


def num_trusted(n: int, byzantine: float) -> int:
    """n - f for f = ceil(byzantine n), but at least 1; three liars among nine are more than 30 %."""
    return max(1, n - round_up(byzantine * n))


def weighted_sum(w: Tensor, u: Tensor) -> Tensor:
    """sum_i w_i u_i for weights (n,), or for each row of weights (m, n).

    The weights are not negative and add up to at most 1, so that only rounding can overflow.
    """
    return without_overflow(w.to(u) @ u)


def without_overflow(x: Tensor) -> Tensor:
    """x, which is changed: what has overflowed becomes the largest number there is."""
    limit = torch.finfo(x.dtype).max
    # The sum is not finite if an entry is not, and quicker than the clamp, to which false alarms do no harm.
    return x if isfinite(x.sum()) else x.clamp_(-limit, limit)


def equal_shares(kept: Tensor) -> Tensor:
    """Weights, float64, that average what is kept, along the last dimension."""
    kept = kept.double()
    return kept / kept.sum(dim=-1, keepdim=True)
