"""Compare results and arguments of components."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import networkx as nx
import numpy as np
from torch import Tensor


def equal(first: object, second: object) -> bool:
    """Return whether two values contain the same numbers. Functions and generators count as equal."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        has_nan = first.dtype.kind in "fc"
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=has_nan)
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        return bool(((first == second) | (first.isnan() & second.isnan())).all())
    if isinstance(first, nx.Graph) and isinstance(second, nx.Graph):
        return list(first.nodes) == list(second.nodes) and list(first.edges) == list(second.edges)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple | deque) and isinstance(second, list | tuple | deque):
        return len(first) == len(second) and all(map(equal, first, second))
    if parts := _field_names(first):
        return all(equal(getattr(first, part), getattr(second, part)) for part in parts)
    if isinstance(first, int | float | str | bytes | set | frozenset):
        return bool(first == second) or (first != first and second != second)
    return True


def _field_names(value: object) -> list[str]:
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return [*getattr(type(value), "__slots__", ())]
