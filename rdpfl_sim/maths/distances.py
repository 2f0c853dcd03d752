"""Distances between rows, summed up in float64: squares of float32 overflow, and small ones vanish."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pdist

_BLOCK = 16384  # columns that are converted to float64 at a time, to stay in the cache


def squared_distances(u: Tensor) -> Tensor:
    """|u_i - u_j|^2 as a float64 matrix (n, n); from differences, as a Gram matrix cancels for close rows."""
    n = len(u)
    i, j = torch.triu_indices(n, n, offset=1, device=u.device)
    result = torch.zeros(n, n, dtype=torch.float64, device=u.device)
    for (rows,) in blocks(u):
        result[i, j] += pdist(rows.double()).square()
    return result + result.T


def distances_to(x: Tensor, u: Tensor) -> Tensor:
    """|u_i - x| for every row of u, float64, (n,)."""
    squares = [(rows.double() - y).square_().sum(dim=1) for rows, y in blocks(u, x)]
    return torch.stack(squares).sum(dim=0).sqrt()


def blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors cut along their last dimension into pieces that stay in the cache, piece by piece."""
    return zip(*(torch.split(tensor, _BLOCK, dim=-1) for tensor in tensors), strict=True)
