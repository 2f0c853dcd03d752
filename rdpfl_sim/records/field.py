"""The declaration of a value that a run leaves behind: its unit, its meaning and its words in reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

Mark = TypeVar("Mark")


class Field(NamedTuple):
    """A field of a record, a column of a table or a key of summary.json.

    Reference pages, labels, tables and figures are derived from it.
    """

    unit: str
    meaning: str
    """What the value is, and its sign if it can be negative."""
    words: str = ""
    """The label of a number in summary.json."""
    heading: str = ""
    """The heading of its column in the table of clients, if it has one."""


class Ratio(NamedTuple):
    """The attributes of `RoundStats` in simulation/telemetry.py whose quotient is a mean over rounds."""

    amount: str
    number: str


def fields_of(table: type[Any]) -> Mapping[str, Field]:
    """Return the fields of a `TypedDict` whose types are annotated with a `Field`, in their order."""
    return marks_of(table, Field)


def marks_of(table: type[Any], kind: type[Mark]) -> Mapping[str, Mark]:
    """Return the annotation of this type of every key of a `TypedDict`."""
    hints = get_type_hints(table, include_extras=True)
    found = {
        name: [mark for mark in get_args(hint) if isinstance(mark, kind)] for name, hint in hints.items()
    }
    assert all(len(marks) == 1 for marks in found.values()), f"one {kind.__name__} per key: {found}"
    return {name: mark for name, [mark] in found.items()}
