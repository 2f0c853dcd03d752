"""Unit and meaning of the fields of records and of the columns of tables, for the reference pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args, get_type_hints


class Field(NamedTuple):
    """The unit of a field and its meaning, which includes the sign if values can be negative."""

    unit: str
    meaning: str
    words: str = ""
    """The words of a label, for numbers in summary.json."""


def fields_of(table: type[Any]) -> Mapping[str, Field]:
    """Return the fields of a `TypedDict` whose types are annotated with a `Field`, in their order."""
    hints = get_type_hints(table, include_extras=True)
    return {name: _field_of(name, hint) for name, hint in hints.items()}


def _field_of(name: str, hint: Any) -> Field:
    found = [mark for mark in get_args(hint)[1:] if isinstance(mark, Field)]
    assert len(found) == 1, f"{name} has no unit and meaning"
    return found[0]
