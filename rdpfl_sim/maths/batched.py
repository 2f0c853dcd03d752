"""Arithmetic for many clients at once: matrices (n, d) with one row per client.

The bits of a row do not depend on the other rows, since a resumed run may batch its clients differently. Sums
over messages are therefore made of single additions, and sums over columns of blocks: how torch splits its
own sums depends on the shape and on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rdpfl_sim.maths.aggregators.aggregator import AGGREGATORS, MAX_MESSAGES, Aggregator, bound_options
from rdpfl_sim.maths.aggregators.order_statistics import band_sum
from rdpfl_sim.maths.distances import blocks


def can_aggregate(aggregator: Aggregator, num_messages: int) -> bool:
    """Return whether `aggregate_together` can compute this aggregator."""
    return num_messages <= MAX_MESSAGES and AGGREGATORS.facts_of(aggregator).order_statistics is not None


def aggregate_together(aggregator: Aggregator, u: Tensor) -> Tensor:
    """Return the aggregates (n, d) of messages u (m, n, d), m for each of n clients; sums must be finite."""
    order_statistics = AGGREGATORS.facts_of(aggregator).order_statistics
    assert order_statistics is not None
    low, high = order_statistics(len(u), **bound_options(aggregator))
    return (band_sum(u.flatten(1), low, high) / (high - low)).view(u.shape[1:])


def norms(v: Tensor) -> Tensor:
    """Return |v_i|_2 of every row in float64, finite for every finite v."""
    lengths: Tensor = torch.linalg.vector_norm(v, dim=1, dtype=torch.float64)
    return lengths


def clip_rows(v: Tensor, limits: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows clipped to their limits, and which were clipped; `lengths` are |v_i|."""
    clipped = ~(lengths <= limits)
    if not clipped.any():
        return v, clipped
    return v * torch.where(clipped, limits / lengths, 1.0).to(v.dtype).unsqueeze(1), clipped


def bb_coefficients(s: Tensor, y: Tensor, epsilon: float, limit: float) -> Tensor:
    """Return beta of every row (n,) in float64; see `vectors.bb_coefficient`."""
    products = s.new_zeros(len(s), dtype=torch.float64)
    squares = torch.zeros_like(products)
    # Torch divides a single row among its threads, but no block that is as short as these.
    for s_part, y_part in blocks(s, y):
        s_part, y_part = s_part.double(), y_part.double()
        products += (s_part * y_part).sum(dim=1)
        squares += (s_part * s_part).sum(dim=1)
    return (products / (squares + epsilon)).clamp(-limit, limit)


def column(values: Sequence[float], like: Tensor) -> Tensor:
    """Return one number per row, (n, 1)."""
    return torch.tensor(values, dtype=torch.float64, device=like.device).to(like.dtype).unsqueeze(1)
