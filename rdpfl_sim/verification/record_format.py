"""The format of records: the fields of every event, their types, and their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

import orjson

from rdpfl_sim.records.record_types import OPEN, RECORDS, RecordHead

Types: TypeAlias = tuple[type, ...]


class RecordFormat:
    """Checks the format of records. Formats that were already checked are cached."""

    def __init__(self, has_telemetry: bool) -> None:
        self.fields = {name: _fields_of(kind) for name, kind in RECORDS.items()}
        if not has_telemetry:
            del self.fields["message_stats"]
        self.seen: set[tuple[Any, ...]] = set()

    def problem_of(self, record: Mapping[str, Any], line: bytes) -> str | None:
        """Return the reason why a run would not write this line, or None if it would."""
        form = (record["event"], *record, *map(type, record.values()))
        if form not in self.seen:
            reason = self._reason(record)
            if reason is not None:
                return reason
            self.seen.add(form)
        return (
            None
            if orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) == line
            else "it is encoded differently"
        )

    def _reason(self, record: Mapping[str, Any]) -> str | None:
        event = record["event"]
        if event not in self.fields:
            return f"unknown event {event!r}"
        required, optional = self.fields[event]
        names = list(record)
        if names[: len(required)] != list(required) or (len(names) > len(required) and event not in OPEN):
            return f"{event} has the fields {', '.join(required)}, not {', '.join(names)}"
        for name, types in {**required, **optional}.items():
            if name in record and type(record[name]) not in types:
                return f"{name} = {record[name]!r} is not of type {' or '.join(map(_name, types))}"
        return None


def _fields_of(kind: type[RecordHead]) -> tuple[dict[str, Types], dict[str, Types]]:
    """Return the required and the optional fields of a record in their order, with their JSON types."""
    required: dict[str, Types] = {}
    optional: dict[str, Types] = {}
    required_keys: frozenset[str] = getattr(kind, "__required_keys__")  # noqa: B009  # mypy: not of `type`
    for name, annotation in get_type_hints(kind).items():
        parts = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        types = tuple(get_origin(part) or part for part in parts)
        (required if name in required_keys else optional)[name] = types
    return required, optional


def _name(kind: type) -> str:
    return "null" if kind is NoneType else kind.__name__
