"""Lengths and distances of rows, in float64 if squares of float32 numbers would overflow or underflow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pdist

# Columns converted to float64 at a time. Ten rows fit into the cache, and the allocator reuses their memory:
# allocating new pages would take longer than the arithmetic.
_BLOCK = 8192
_LEAST = 1e-15  # squares of shorter rows underflow in float32


def squared_distances(u: Tensor) -> Tensor:
    """Return |u_i - u_j|^2, float64 (n, n), from differences: a Gram matrix is inexact for close rows."""
    numbers = _pair_numbers(len(u)).to(u.device)
    of_pairs = torch.zeros(int(numbers[0, 0]) + 1, dtype=torch.float64, device=u.device)
    for (rows,) in blocks(u):
        distances = pdist(rows.double())
        of_pairs[:-1].addcmul_(distances, distances)
    return of_pairs[numbers]


@lru_cache(maxsize=256)
def _pair_numbers(n: int) -> Tensor:
    """Return the position of each pair (i, j) in the result of `pdist`, (n, n); (i, i) is past its end."""
    num_pairs = n * (n - 1) // 2
    numbers = torch.full((n, n), num_pairs)
    i, j = torch.triu_indices(n, n, offset=1)
    numbers[i, j] = numbers[j, i] = torch.arange(num_pairs)
    return numbers


def norms(u: Tensor) -> Tensor:
    """Return |u_i| for every row of u, (n,), float64 with the precision of float32."""
    return _checked(vector_norm(u, dim=1).double(), u, 0.0)


def distances_to(x: Tensor, u: Tensor) -> Tensor:
    """Return |u_i - x| for every row of u, (n,), float64 with the precision of float32."""
    difference = torch.empty_like(x)  # one row at a time fits into the cache
    lengths = [vector_norm(torch.sub(row, x, out=difference)) for row in u]
    return _checked(torch.stack(lengths).double(), u, x)


def _checked(lengths: Tensor, u: Tensor, x: Tensor | float) -> Tensor:
    """Return the lengths of u - x; on overflow or underflow in float32, they are computed in float64."""
    doubtful = ~((lengths > _LEAST) & (lengths < torch.inf))
    if doubtful.any():
        lengths[doubtful] = vector_norm(u[doubtful].double() - x, dim=1)
    return lengths


def blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split the tensors along their last dimension into pieces that fit into the cache."""
    return zip(*(torch.split(tensor, _BLOCK, dim=-1) for tensor in tensors), strict=True)
