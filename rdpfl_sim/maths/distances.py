"""Lengths and distances of rows, in float64 where squares of float32 numbers would overflow or vanish."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pdist

# Columns converted to float64 at a time: ten rows stay in the cache, and the allocator reuses their memory
# instead of asking the system for new pages, which takes longer than the arithmetic.
_BLOCK = 8192
_LEAST = 1e-15  # shorter rows have squares that float32 cannot hold


def squared_distances(u: Tensor) -> Tensor:
    """Return |u_i - u_j|^2, float64 (n, n), from differences: a Gram matrix cancels for close rows."""
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
    difference = torch.empty_like(x)  # one at a time stays in the cache
    lengths = [vector_norm(torch.sub(row, x, out=difference)) for row in u]
    return _checked(torch.stack(lengths).double(), u, x)


def _checked(lengths: Tensor, u: Tensor, x: Tensor | float) -> Tensor:
    """Return the lengths of u - x; those that overflowed or vanished in float32 are computed again."""
    doubtful = ~((lengths > _LEAST) & (lengths < torch.inf))
    if doubtful.any():
        lengths[doubtful] = vector_norm(u[doubtful].double() - x, dim=1)
    return lengths


def blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the tensors in pieces along their last dimension that stay in the cache."""
    return zip(*(torch.split(tensor, _BLOCK, dim=-1) for tensor in tensors), strict=True)
