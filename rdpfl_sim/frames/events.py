"""Read events.jsonl as a lazy frame; while a run is incomplete, an unfinished last line is ignored."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from types import NoneType, UnionType
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

import orjson
import polars as pl

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.record_types import OPEN, RECORDS, RecordHead
from rdpfl_sim.records.run_folder import EVENTS as EVENTS_FILE

Schema: TypeAlias = dict[str, Any]

SMALL = ("client", "sender", "recipient", "fault")
"""Integer fields stored in 32 bits to save memory; their values are small."""


def _columns_of(record: type[RecordHead]) -> Schema:
    return {field: _column_type(field, kind) for field, kind in get_type_hints(record).items()}


def _column_type(field: str, kind: Any) -> Any:
    """Return the polars type of a field; None in a union means that the field may be null."""
    if isinstance(kind, UnionType):
        [kind] = (part for part in get_args(kind) if part is not NoneType)
    if get_origin(kind) is list:
        return pl.List(_column_type("client", *get_args(kind)))
    if kind is int and field in SMALL:
        return pl.Int32
    return {int: pl.Int64, float: pl.Float64, bool: pl.Boolean, str: pl.String}[kind]


EVENTS: dict[str, Schema] = {name: _columns_of(record) for name, record in RECORDS.items()}
"""The fields of each record type. Methods add diagnostics to `estimate`; plug-in faults add parameters."""

NUM_INSPECTED = 5_000
"""Maximum number of records that are searched for additional fields."""


def schema_of(names: Collection[str]) -> Schema:
    """Return the fields that records with these names have in every run.

    If `names` is empty, return the fields of all record types.
    """
    schema = _columns_of(RecordHead)
    for name in names or EVENTS:
        schema |= EVENTS.get(name, {})
    return schema


def scan(reader: RunReader, names: Collection[str]) -> pl.LazyFrame:
    """Return the records with these names, or all records if `names` is empty.

    The file of a complete run is read lazily. The file of an incomplete run may still grow, so its
    current content is read immediately.
    """
    schema = schema_of(names)
    schema |= _other_fields(reader, names, schema)
    source = reader.folder / EVENTS_FILE if reader.is_complete() else b"".join(reader.record_lines())
    if source == b"":
        return pl.LazyFrame(schema=schema)
    records = pl.scan_ndjson(source, schema=schema)
    return records.filter(pl.col("event").is_in(list(names))) if names else records


def _other_fields(reader: RunReader, names: Collection[str], known: Schema) -> Schema:
    """Return fields missing from EVENTS, such as the diagnostics of most methods."""
    beginnings = tuple(f'{{"event":"{name}"'.encode() for name in OPEN if not names or name in names)
    lines = (
        (number, line) for number, line in enumerate(reader.record_lines(), 1) if line.startswith(beginnings)
    )
    fields: Schema = {}
    for number, line in islice(lines if beginnings else (), NUM_INSPECTED):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise RunError(f"{reader.folder / EVENTS_FILE} is damaged at line {number}: {error}") from error
        fields |= {
            field: data_type
            for field, value in record.items()
            if field not in known and (data_type := _data_type(value)) is not None
        }
    return fields


def _data_type(value: Any) -> Any:
    if isinstance(value, bool):
        return pl.Boolean
    return pl.Float64 if isinstance(value, int | float) else pl.String if isinstance(value, str) else None
