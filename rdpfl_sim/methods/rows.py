"""Values with one row per client: stack the values of several clients, and split them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor


class Rows(Protocol):
    """A dataclass whose tensors have one row per client."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Rows)


def stack(values: Sequence[T]) -> T:
    """Return one value with all rows. Tuples are joined; other fields are taken from the first value."""
    first = values[0]
    if len(values) == 1:
        return first
    entries = {}
    for field in fields(first):
        entry = getattr(first, field.name)
        if isinstance(entry, Tensor):
            entry = torch.cat([getattr(value, field.name) for value in values])
        elif isinstance(entry, tuple):
            entry = tuple(item for value in values for item in getattr(value, field.name))
        entries[field.name] = entry
    return type(first)(**entries)


def split(value: T, before: T, rows_before: Sequence[T]) -> list[T]:
    """Return one value per row of `value`, which was computed from `before`, the stack of `rows_before`.

    Tensors that are unchanged from `before` are not copied: the rows of `rows_before` are reused. Other
    vectors are copied, so that no client keeps the whole batch in memory.
    """
    num_rows = len(rows_before)
    if num_rows == 1:
        return [value]
    known: dict[int, list[Tensor]] = {}
    for field in fields(before):
        entry = getattr(before, field.name)
        if isinstance(entry, Tensor):
            known[id(entry)] = [getattr(row, field.name) for row in rows_before]
    columns = {}
    for field in fields(value):
        entry = getattr(value, field.name)
        if not isinstance(entry, Tensor):
            columns[field.name] = [entry] * num_rows
            continue
        if id(entry) not in known:
            rows = torch.split(entry, 1)
            known[id(entry)] = [row.clone() for row in rows] if entry.dim() > 1 else list(rows)
        columns[field.name] = known[id(entry)]
    return [type(value)(**{name: column[row] for name, column in columns.items()}) for row in range(num_rows)]
