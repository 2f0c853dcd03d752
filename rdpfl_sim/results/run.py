"""The records of one run, in any state: finished, failed, interrupted or still running."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import islice
from math import isfinite
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

import networkx as nx
import orjson
import polars as pl

from rdpfl_sim.errors import RunError
from rdpfl_sim.files import JsonObject
from rdpfl_sim.records.field import Field
from rdpfl_sim.records.files import EVENTS as EVENTS_FILE
from rdpfl_sim.records.files import PROVENANCE
from rdpfl_sim.records.metrics import MOMENTS, MetricsRow, headline_moment
from rdpfl_sim.records.reader import RunReader, Topology, run_folder_problem
from rdpfl_sim.records.record_types import OPEN, RECORDS, RecordHead
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.records.summary import RoundRange


class Run:
    """A run folder. Small files are read on first access; `events`, `messages` and `rounds` are lazy."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        problem = run_folder_problem(self.folder)
        if problem is not None:
            raise RunError(problem)
        self._reader = RunReader(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @cached_property
    def scenario(self) -> JsonObject:
        """The resolved scenario: every option with its value."""
        return self._reader.read_scenario()

    @cached_property
    def summary(self) -> JsonObject:
        """The content of summary.json: only `status` and `error` if the run failed, empty if unfinished."""
        return self._reader.read_summary() or {}

    @cached_property
    def flat_summary(self) -> JsonObject:
        """The summary with dotted keys."""
        return flatten(self.summary)

    def value(self, metric: str) -> float | None:
        """Return a number in the summary, such as `messages.sent`, or None if it is missing or not finite."""
        return finite_number(self.flat_summary.get(metric))

    @property
    def seed(self) -> int:
        """The seed in the scenario."""
        return int(self.scenario.get("seed", 1))

    @cached_property
    def provenance(self) -> JsonObject:
        """Commit, versions, command and machine; empty if provenance.json is missing."""
        return self._reader.read_provenance() or {}

    @cached_property
    def defaults(self) -> frozenset[str]:
        """The paths of the settings at their default, from provenance.json; empty if they are unknown."""
        paths = self.provenance.get("defaults", [])
        if not isinstance(paths, list):
            raise RunError(f"{self.folder / PROVENANCE} is damaged: defaults is not a list")
        return frozenset(map(str, paths))

    @cached_property
    def topology(self) -> Topology:
        """`num_clients`, `edges` and `byzantine` at the start of the run."""
        try:
            return self._reader.read_topology()
        except FileNotFoundError:  # the run ended before the topology was built
            count = self.scenario.get("clients", {}).get("count", 0)
            return {"num_clients": count, "edges": [], "byzantine": []}

    @cached_property
    def graph(self) -> nx.Graph:
        """The graph of clients at the start of the run."""
        graph = nx.empty_graph(self.num_clients)
        graph.add_edges_from(self.topology["edges"])
        return graph

    @property
    def status(self) -> RunStatus:
        """`finished`, `out of time`, `interrupted`, `failed`, or `unfinished` (running or killed)."""
        return RunStatus.of_summary(self.summary or None)

    @cached_property
    def round_range(self) -> RoundRange:
        """The rounds that clients have finished: from the summary, or else from the records so far."""
        planned = int(self.scenario.get("rounds", 0))
        found = RoundRange.of_summary(self.summary, planned)
        if found is not None:
            return found
        if self.has_events:
            finished = self.events("round_finished").group_by("client").agg(pl.len()).collect()
        else:
            finished = self.metrics.group_by("client").agg(pl.col("round").max())
        counts = dict(finished.rows())
        done = [int(counts.get(client, 0)) for client in range(self.num_clients)] or [0]
        return RoundRange(min(done), max(done), planned)

    @property
    def byzantine(self) -> frozenset[int]:
        """Ids of the Byzantine clients."""
        return frozenset(self.topology["byzantine"])

    @property
    def num_clients(self) -> int:
        """Number of clients, including those that join later."""
        return int(self.topology["num_clients"])

    @property
    def has_events(self) -> bool:
        """Whether events were recorded (`output.events`)."""
        return self._reader.has_records()

    @property
    def message_fraction(self) -> float:
        """Fraction of messages with recorded events (`output.message_events`)."""
        return float(self.scenario.get("output", {}).get("message_events", 1.0)) if self.has_events else 0.0

    @property
    def metrics(self) -> pl.DataFrame:
        """One row per client and evaluation, from metrics.csv, with the Boolean `is_byzantine`."""
        rows = self._reader.read_metrics() if self._reader.has_metrics() else []
        metrics = pl.DataFrame(rows, schema=_columns_of(MetricsRow))
        return metrics.with_columns(pl.col("byzantine").cast(pl.Boolean)).rename(
            {"byzantine": "is_byzantine"}
        )

    @property
    def moment(self) -> str:
        """The moment of accuracies in tables and figures: `trained`, unless only `updated` is evaluated."""
        return headline_moment(self.scenario)

    def evaluations(self, moment: str | None = None) -> pl.DataFrame:
        """Return `metrics` at one moment, `trained` or `updated` (default: `Run.moment`).

        Its columns have no prefix: `time_s`, `personal_accuracy`, ...
        """
        moment = moment or self.moment
        if moment not in MOMENTS:
            raise ValueError(f"moment must be one of {', '.join(MOMENTS)}, not {moment!r}")
        metrics, prefix = self.metrics, f"{moment}_"
        others = [f"^{other}_.*$" for other in MOMENTS if other != moment]
        names = {name: name.removeprefix(prefix) for name in metrics.columns if name.startswith(prefix)}
        return metrics.select(pl.exclude(others)).rename(names).filter(pl.col("time_s").is_not_null())

    @property
    def latest(self) -> pl.DataFrame:
        """The last evaluation of each client, at the moment of the run."""
        return last_evaluations(self.evaluations())

    @property
    def messages(self) -> pl.LazyFrame:
        """One row per recorded message, including copies.

        `message` (its number), `sender`, `recipient`, `is_byzantine` (of the sender), `round` (the stamp),
        `true_round`, `original` (of a copy), `size_bytes`, `sent_s`, `delivered_s`, `lost_s`, `used_s`,
        `dropped_s`, `delay_s`, `outcome` (used, lost, stale, duplicate, rejected, left over, in flight),
        `reason`, `age`, `weight`, `distance_to_own`, `distance_to_predicted`.
        """
        return messages_frame(self.events(*MESSAGE_EVENTS), self.byzantine)

    @property
    def rounds(self) -> pl.LazyFrame:
        """One row per round started by a client.

        `client`, `round`, `is_byzantine`, `started_s`, `trained_s`, `finished_s`, `duration_s` and `loss` of
        the training, `num_used`, `max_age`, and the diagnostics of the method: `tau`, `delta_norm`, ...
        """
        return rounds_frame(self.events(*ROUND_EVENTS), self.byzantine)

    @property
    def faults(self) -> pl.DataFrame:
        """One row per fault record.

        `time_s`, `fault` (index in the scenario), `kind`, `phase`, and the affected clients or links.
        """
        return self.events("fault").drop("event").collect()

    def events(self, *names: str) -> pl.LazyFrame:
        """Return the records with these names, or all records without arguments; missing fields are null."""
        if not self.has_events:
            return pl.LazyFrame(schema=schema_of(names))
        return scan(self._reader, names)


def flatten(table: Mapping[str, object], prefix: str = "") -> JsonObject:
    """Return nested tables as one table with dotted keys.

    >>> flatten({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    flat: JsonObject = {}
    for key, item in table.items():
        if isinstance(item, Mapping):
            flat |= flatten(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def finite_number(value: object) -> float | None:
    """Return a value of a summary as a float, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)


def last_evaluations(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the last row of each client."""
    return metrics.group_by("client", maintain_order=True).last().sort("client")


Schema: TypeAlias = dict[str, Any]

SMALL = ("client", "sender", "recipient", "fault", "hops")
"""Integer fields stored in 32 bits to save memory; their values are small."""


def _columns_of(record: type[Any]) -> Schema:
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


DROPPED = ("stale", "duplicate", "rejected")
MESSAGE_EVENTS = tuple(
    f"message_{name}" for name in ("sent", "copied", "lost", "delivered", "used", "stats", *DROPPED)
)
TIMES = {
    "started_s": "training_started",
    "trained_s": "training_finished",
    "finished_s": "round_finished",
}
ROUND_EVENTS = (*TIMES.values(), "estimate")
FRAME_FIELDS = {
    "is_byzantine": Field("true or false", "whether the client, or the sender of the message, is Byzantine"),
    "sent_s": Field("s", "time of sending, or of copying"),
    "delivered_s": Field("s", "time of delivery; null if there was none"),
    "lost_s": Field("s", "time of the loss; null if there was none"),
    "used_s": Field("s", "end of the round that used the message; null if there was none"),
    "dropped_s": Field("s", "time at which the recipient dropped it; null if it did not"),
    "outcome": Field("text", "used, lost, stale, duplicate, rejected, left over or in flight"),
    "started_s": Field("s", "start of the local training"),
    "trained_s": Field("s", "end of the local training"),
    "finished_s": Field("s", "end of the round; null if the client did not finish it"),
}
"""Columns of `messages` and `rounds` that are not fields of records."""


def messages_frame(events: pl.LazyFrame, byzantine: Collection[int]) -> pl.LazyFrame:
    """Return one row per message: sending time, outcome and reason."""
    times = {
        "sent_s": ("message_sent", "message_copied"),
        "delivered_s": ("message_delivered",),
        "lost_s": ("message_lost",),
        "used_s": ("message_used",),
        "dropped_s": tuple(f"message_{outcome}" for outcome in DROPPED),
    }
    outcome = pl.col("event").str.strip_prefix("message_")
    merged = (
        events.with_columns(
            *(_time_of(names).alias(column) for column, names in times.items()),
            pl.when(outcome.is_in(["lost", "used", *DROPPED])).then(outcome).alias("outcome"),
        )
        .group_by("message")
        .agg(pl.exclude("event", "time_s", "message").max())  # records of one message agree on common fields
        .sort("message")
    )
    without_outcome = (
        pl.when(pl.col("delivered_s").is_null()).then(pl.lit("in flight")).otherwise(pl.lit("left over"))
    )
    return merged.select(
        *("message", "sender", "recipient"),
        pl.col("sender").is_in(list(byzantine)).alias("is_byzantine"),
        *("round", "true_round", "original", "size_bytes"),
        *("sent_s", "delivered_s", "lost_s", "used_s", "dropped_s", "delay_s"),
        pl.coalesce("outcome", without_outcome).alias("outcome"),
        *("reason", "age", "weight", "distance_to_own", "distance_to_predicted"),
    )


def rounds_frame(events: pl.LazyFrame, byzantine: Collection[int]) -> pl.LazyFrame:
    """Return one row per round started by a client, with its times and the method's diagnostics.

    A client that crashes starts its round again. The row describes the last attempt.
    """
    last_start = pl.col("started_s").max().over("client", "round")
    return (
        events.with_columns(*(_time_of([name]).alias(column) for column, name in TIMES.items()))
        .filter(pl.col("time_s") >= last_start)
        .group_by("client", "round")
        .agg(pl.exclude("event", "time_s", "client", "round").max())
        .sort("client", "round")
        .select(
            *("client", "round"),
            pl.col("client").is_in(list(byzantine)).alias("is_byzantine"),
            *TIMES,
            pl.exclude("client", "round", *TIMES),
        )
    )


def _time_of(names: Collection[str]) -> pl.Expr:
    return pl.when(pl.col("event").is_in(list(names))).then("time_s")
