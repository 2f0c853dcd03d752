"""Norms and clipping for matrices with one row per client.

Norms and inner products accumulate in float64: a hostile message may contain 1e38, whose square is infinite
in float32, and clipping by an infinite norm would return NaN. The bits of a row must not depend on the other
rows, because a resumed run may batch its clients differently. Columns are therefore summed in blocks: the
order of torch's own sums depends on the shape and the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pdist

LARGEST = 2.0**100
"""Largest entry of an aggregate, so that the difference of two aggregates is finite in float32."""


def square_root(x: Tensor) -> Tensor:
    """Return the correctly rounded square root. On a CPU, torch's depends on the processor.

    >>> square_root(torch.tensor([0.0, 4.0, 2.0]))
    tensor([0.0000, 2.0000, 1.4142])
    """
    if x.device.type != "cpu":
        return x.sqrt()
    root = torch.empty_like(x)
    np.sqrt(x.numpy(), out=root.numpy())
    return root


def product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a @ b as torch computes it. The last bits of numpy's product depend on the processor.

    >>> product(np.ones(2), np.eye(2))
    array([1., 1.])
    """
    result: NDArray[np.float64] = torch.matmul(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    return result


def norm(v: Tensor) -> float:
    """Return |v|_2 of one vector, finite for every finite v."""
    return float(torch.linalg.vector_norm(v, dtype=torch.float64))


def row_norms(v: Tensor) -> Tensor:
    """Return |v_i|_2 of every row (n,) in float64, finite for every finite v."""
    lengths: Tensor = torch.linalg.vector_norm(v, dim=1, dtype=torch.float64)
    return lengths


def message_distances(messages: Tensor, points: Tensor) -> Tensor:
    """Return |u_ij - x_i| (n, m), in float64, for messages u (n, m, d) and points x (n, d)."""
    lengths: Tensor = vector_norm(messages - points.unsqueeze(1), dim=2, dtype=torch.float64)
    return lengths


def clamp_finite(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return x; entries that overflow become the largest number of their type, or of `dtype`."""
    limit = torch.finfo(dtype or x.dtype).max
    return x.clamp(-limit, limit)


def clip_rows(v: Tensor, limits: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return Clip(v_i; limit_i) = v_i min{1, limit_i / |v_i|}, and a mask of the clipped rows (Section IV-C).

    `lengths` are |v_i|.

    >>> v = torch.tensor([[3.0, 4.0], [0.0, 0.5]])
    >>> clip_rows(v, torch.ones(2), row_norms(v))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.5000]]), tensor([ True, False]))
    """
    clipped = ~(lengths <= limits)
    if not clipped.any():
        return v, clipped
    return v * torch.where(clipped, limits / lengths, 1.0).to(v.dtype).unsqueeze(1), clipped


def clip_around(u: Tensor, messages: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Return u + Clip(u_j - u; radius) for the messages u_j (n, m, d), and the factors (n, m).

    This is the clipping of ClippedGossip (He, Karimireddy and Jaggi 2022), applied to directions.

    >>> clip_around(torch.tensor([[0.0, 0.0]]), torch.tensor([[[3.0, 4.0], [0.0, 0.5]]]), torch.tensor([1.0]))
    (tensor([[[0.6000, 0.8000],
             [0.0000, 0.5000]]]), tensor([[0.2000, 1.0000]]))
    """
    deviations = messages.clamp(-LARGEST, LARGEST) - u.unsqueeze(1)
    lengths = torch.linalg.vector_norm(deviations, dim=2, dtype=torch.float64)
    limits = radius.unsqueeze(1)
    factors = torch.where(lengths > limits, limits / lengths, 1.0).to(u.dtype)
    return deviations.mul_(factors.unsqueeze(2)).add_(u.unsqueeze(1)), factors


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
