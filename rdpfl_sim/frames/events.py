"""Read events.jsonl as a lazy frame; while a run is incomplete, an unfinished last line is ignored."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Any, TypeAlias

import orjson
import polars as pl

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.run_folder import EVENTS as EVENTS_FILE

Schema: TypeAlias = dict[str, Any]

_CLIENT: Schema = {"client": pl.Int32}
_ROUND: Schema = {**_CLIENT, "round": pl.Int64}
_MESSAGE: Schema = {"message": pl.Int64, "sender": pl.Int32, "recipient": pl.Int32, "round": pl.Int64}
_DROPPED: Schema = {**_MESSAGE, "reason": pl.String}

EVENTS: dict[str, Schema] = {
    "run_started": {
        "schema": pl.Int64,
        "seed": pl.Int64,
        "num_parameters": pl.Int64,
        "byzantine": pl.List(pl.Int32),
    },
    "training_started": {**_ROUND, "duration_s": pl.Float64},
    "training_finished": {**_ROUND, "loss": pl.Float64, "num_steps": pl.Int64},
    "round_finished": {**_ROUND, "num_used": pl.Int64, "max_age": pl.Int64},
    "estimate": {
        **_ROUND,
        **dict.fromkeys(("u_norm", "d_norm", "neighbour_share", "delta_norm", "beta", "tau"), pl.Float64),
        "clipped": pl.Boolean,
        "bounded": pl.Boolean,
    },
    "evaluated": {
        **_ROUND,
        **dict.fromkeys(("personal_accuracy", "personal_loss", "global_accuracy", "global_loss"), pl.Float64),
    },
    "theory": {**_ROUND, "loss": pl.Float64, "gradient_norm": pl.Float64, "L": pl.Float64},
    "message_sent": {**_MESSAGE, "true_round": pl.Int64, "size_bytes": pl.Float64},
    "message_copied": {**_MESSAGE, "original": pl.Int64},
    "message_lost": _DROPPED,
    "message_delivered": {**_MESSAGE, "delay_s": pl.Float64},
    "message_used": {**_MESSAGE, "age": pl.Int64},
    "message_stats": {
        **_MESSAGE,
        **dict.fromkeys(("weight", "distance_to_own", "distance_to_predicted"), pl.Float64),
    },
    "message_stale": _DROPPED,
    "message_duplicate": _DROPPED,
    "message_rejected": _DROPPED,
    "fault": {
        "fault": pl.Int32,
        "kind": pl.String,
        "phase": pl.String,
        "clients": pl.List(pl.Int32),
        "links": pl.List(pl.List(pl.Int32)),
        "sides": pl.List(pl.List(pl.Int32)),
        "factor": pl.Float64,
        "for_good": pl.Boolean,
        "fresh": pl.Boolean,
        "catch_up": pl.Boolean,
    },
    "final_model": {**_CLIENT, "blake2b": pl.String},
    "run_finished": {
        "status": pl.String,
        **dict.fromkeys(("sent", "delivered", "lost", "in_flight", "used", "stale"), pl.Int64),
        **dict.fromkeys(("duplicate", "rejected", "left_over", "copied", "reordered", "bytes"), pl.Int64),
    },
}
"""Fields of each record besides `event` and `time_s`; methods add diagnostics to `estimate`."""

COMMON_FIELDS: Schema = {"event": pl.String, "time_s": pl.Float64}
NUM_INSPECTED = 5_000
"""Records at the beginning of the file that are searched for fields of plug-ins."""


def schema_of(names: Collection[str]) -> Schema:
    """Return the fields that records with these names have in every run (without names: all records)."""
    fields = {field: kind for name in names or EVENTS for field, kind in EVENTS.get(name, {}).items()}
    return {**COMMON_FIELDS, **fields}


def scan(reader: RunReader, names: Collection[str]) -> pl.LazyFrame:
    """Return the records with these names (without names: all records).

    The file of a complete run is read lazily. Another run may still write to it: its present content is read.
    """
    schema = schema_of(names)
    schema |= _plugin_fields(reader, names, schema)
    source = reader.folder / EVENTS_FILE if reader.is_complete() else b"".join(reader.record_lines())
    if source == b"":
        return pl.LazyFrame(schema=schema)
    records = pl.scan_ndjson(source, schema=schema)
    return records.filter(pl.col("event").is_in(list(names))) if names else records


def _plugin_fields(reader: RunReader, names: Collection[str], known: Schema) -> Schema:
    """Return fields that EVENTS lacks, such as the diagnostics of most methods."""
    fields: Schema = {}
    for number, line in enumerate(islice(reader.record_lines(), NUM_INSPECTED), start=1):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise RunError(f"{reader.folder / EVENTS_FILE} is damaged at line {number}: {error}") from error
        if not names or record.get("event") in names:
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
