"""Values with one row per client: stack the values of several clients, and split them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields
from operator import attrgetter
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
            entry = torch.cat(list(map(attrgetter(field.name), values)))
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
    columns = []
    names = [field.name for field in fields(value)]
    for name in names:
        entry = getattr(value, name)
        if not isinstance(entry, Tensor):
            columns.append([entry] * num_rows)
            continue
        if id(entry) not in known:
            rows = torch.split(entry, 1)
            known[id(entry)] = [row.clone() for row in rows] if entry.dim() > 1 else list(rows)
        columns.append(known[id(entry)])
    return [_make(type(value), names, entries) for entries in zip(*columns, strict=True)]


def _make(cls: type[T], names: Sequence[str], entries: Sequence[object]) -> T:
    """Return `cls(**dict(zip(names, entries)))`, without the slow `__init__` of frozen dataclasses."""
    value = object.__new__(cls)
    value.__dict__.update(zip(names, entries, strict=True))
    return value
