"""Compute order statistics of columns, and means of bands of them, with a sorting network on rows.

A sorting network is a fixed list of exchanges (a, b) <- (min, max) that sorts any input. Applied to whole
rows, an exchange is two vectorised calls, while `torch.sort` and `torch.median` process each column with
scalar code. Two measures make the network fast: exchanges that do not affect the values in the band are
omitted, and columns are processed in blocks that fit into the cache. The network uses numpy, which has less
overhead than torch and gives the same bits. On a GPU, columns are sorted instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rdpfl_sim.aggregators.weighting import without_overflow

# With fewer columns per step, a network is slower than numpy's sort, which has vector instructions for
# short columns. Measured for 3 to 50 rows.
_MIN_COLUMNS_PER_STEP = 10
_BLOCK = 32768  # columns that fit into the cache

_Array: TypeAlias = NDArray[np.floating[Any]]
_Operation: TypeAlias = Callable[..., _Array]
_Exchange: TypeAlias = tuple[int, int, list[tuple[_Operation, int]]]


class Program(NamedTuple):
    """A network as straight-line code, `operation(x, y, out=z)`, on registers: the n rows, then scratch."""

    steps: list[tuple[_Operation, int, int, int]]
    band: list[int]  # the registers that contain the band at the end
    num_scratch: int

    def run(self, rows: _Array, scratch: _Array) -> list[_Array]:
        """Return the band of the columns of `rows`, stored in `rows` and in `scratch`."""
        registers = [*rows, *scratch[:, : rows.shape[1]]]
        for operation, x, y, z in self.steps:
            operation(registers[x], registers[y], out=registers[z])
        return [registers[r] for r in self.band]


def band_mean(u: Tensor, low: int, high: int) -> Tensor:
    """Return the mean (d,) of the order statistics low, ..., high - 1 of every column of u (n, d).

    Order statistics are counted from 0, the smallest. The mean is finite for every finite u.
    """
    assert 0 <= low < high <= len(u), f"no order statistics {low}..{high - 1} of {len(u)} rows"
    out = _band_sum(u, low, high)
    # A cheap test for overflow: the sum is finite only if all entries are. False alarms are harmless.
    if math.isfinite(out.sum()):
        return out.div_(high - low)
    return without_overflow(_band_sum(u / (high - low), low, high))


def band_sum(u: Tensor, low: int, high: int) -> Tensor:
    """Return the sum of a band, which may overflow. The bits of a column do not depend on other columns."""
    if u.is_cpu:
        return _network_sum(program(len(u), low, high), u)
    in_order = _sorted(u)
    total = in_order[low]
    for place in range(low + 1, high):
        total = total + in_order[place]
    return total


def _band_sum(u: Tensor, low: int, high: int) -> Tensor:
    if (low, high) == (0, len(u)):
        return u.sum(dim=0)
    network = _network(u, low, high)
    if network is None:
        return _sorted(u)[low:high].sum(dim=0)
    return _network_sum(network, u)


def _network_sum(network: Program, u: Tensor) -> Tensor:
    rows: _Array = u.numpy()
    d = rows.shape[1]
    out = np.empty(d, rows.dtype)
    scratch = np.empty((network.num_scratch, min(d, _BLOCK)), rows.dtype)
    for begin in range(0, d, _BLOCK):
        block = slice(begin, begin + _BLOCK)
        first, *others = network.run(rows[:, block], scratch)
        result = out[block]
        result[:] = first
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for overflow
            for row in others:
                result += row
    return torch.from_numpy(out)


def sorted_rows(u: Tensor, low: int = 0, high: int | None = None) -> list[Tensor]:
    """Return the order statistics low, ..., high - 1 of every column of u (n, d); they may be rows of u.

    The default is all of them. Pass few columns at a time, such as the blocks of `vectors.blocks`, because
    memory use doubles.
    """
    n, d = u.shape
    high = n if high is None else high
    network = _network(u, low, high, in_order=True)
    if network is None:
        return list(_sorted(u)[low:high])
    rows: _Array = u.numpy()
    in_order = network.run(rows, np.empty((network.num_scratch, d), rows.dtype))
    return [torch.from_numpy(row) for row in in_order]


def _network(u: Tensor, low: int, high: int, in_order: bool = False) -> Program | None:
    """Return the network for a band of u, or None if sorting is faster."""
    n, d = u.shape
    if not u.is_cpu or d < _MIN_COLUMNS_PER_STEP * n:  # there are more steps than rows
        return None
    network = program(n, low, high, in_order)
    return network if d >= _MIN_COLUMNS_PER_STEP * len(network.steps) else None


def _sorted(u: Tensor) -> Tensor:
    return torch.from_numpy(np.sort(u.numpy(), axis=0)) if u.is_cpu else u.sort(dim=0).values


@lru_cache(maxsize=256)
def program(n: int, low: int, high: int, in_order: bool = False) -> Program:
    """Return the shortest program that leaves the order statistics low, ..., high - 1 in its band.

    They are in any order, unless `in_order`. Batcher's network has 2^k wires. Wires above the n rows are
    treated as infinity, so exchanges with them do nothing. Shifting the rows by one, above a wire with minus
    infinity, may allow more exchanges to be pruned.
    """
    size = 1 << (n - 1).bit_length()
    shifts = range(min(2, size - n + 1))
    exchanges = [[(a - s, b - s) for a, b in _batcher(size) if a >= s and b < s + n] for s in shifts]
    candidates = [_pruned(candidate, low, high, in_order) for candidate in exchanges]
    return _allocate(min(candidates, key=lambda c: sum(len(results) for *_, results in c)), n, low, high)


def _batcher(size: int) -> Iterator[tuple[int, int]]:
    """Yield the exchanges of Batcher's merge exchange sort. The number of wires is a power of two.

    K. Batcher, AFIPS 1968, as Algorithm M of Knuth, The Art of Computer Programming, vol. 3, section 5.2.2.
    """
    strides = [1 << bit for bit in reversed(range(size.bit_length() - 1))]
    for p in strides:
        yield from ((i, i + p) for i in range(size - p) if not i & p)
        for distance in (q - p for q in strides if q > p):
            yield from ((i, i + distance) for i in range(size - distance) if i & p)


def _pruned(exchanges: list[tuple[int, int]], low: int, high: int, in_order: bool) -> list[_Exchange]:
    """Return the exchanges that affect the wires low, ..., high - 1, each reduced to its used outputs."""
    needed = set(range(low, high))
    # Wires of the band that no later exchange uses; their order is irrelevant unless `in_order`.
    unordered = set() if in_order else set(needed)
    kept: list[_Exchange] = []
    for a, b in reversed(exchanges):
        pair = {a, b}
        if pair & needed and not pair <= unordered:
            kept.append((a, b, [r for r in ((np.minimum, a), (np.maximum, b)) if r[1] in needed]))
            needed |= pair
            unordered -= pair
    return kept[::-1]


def _allocate(exchanges: Iterable[_Exchange], n: int, low: int, high: int) -> Program:
    """Assign the exchanges to as few registers as possible; the rows themselves are never modified."""
    place = list(range(n))  # the register of each wire
    free: list[int] = []
    num_registers = n
    steps = []
    for a, b, results in exchanges:
        x, y = place[a], place[b]
        for operation, wire in results:
            if wire == results[-1][1]:  # the last operation that reads x and y may overwrite them
                free += [register for register in (x, y) if register >= n]
            if not free:
                free.append(num_registers)
                num_registers += 1
            place[wire] = free.pop()
            steps.append((operation, x, y, place[wire]))
    return Program(steps, place[low:high], num_registers - n)
