"""The records of one run, in any state: finished, failed, interrupted or still running."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path

import networkx as nx
import polars as pl

from rdpfl_sim.errors import RunError
from rdpfl_sim.frames import messages_and_rounds
from rdpfl_sim.frames.events import scan, schema_of
from rdpfl_sim.records.json_file import JsonObject
from rdpfl_sim.records.metrics_file import METRICS
from rdpfl_sim.records.reader import RunReader, Topology, run_folder_problem
from rdpfl_sim.records.round_range import RoundRange
from rdpfl_sim.records.status import RunStatus

INTEGER_COLUMNS = {"client": pl.Int32, "byzantine": pl.Int8, "round": pl.Int64, "hops": pl.Int32}
METRIC_TYPES: dict[str, type[pl.DataType]] = {name: INTEGER_COLUMNS.get(name, pl.Float64) for name in METRICS}


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
    def provenance(self) -> JsonObject:
        """Commit, versions, command and machine; empty if provenance.json is missing."""
        return self._reader.read_provenance() or {}

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
        metrics = pl.DataFrame(rows, schema=METRIC_TYPES)
        return metrics.with_columns(pl.col("byzantine").cast(pl.Boolean)).rename(
            {"byzantine": "is_byzantine"}
        )

    @property
    def latest(self) -> pl.DataFrame:
        """The last evaluation of each client."""
        return last_evaluations(self.metrics)

    @property
    def messages(self) -> pl.LazyFrame:
        """One row per recorded message, including copies.

        `message` (its number), `sender`, `recipient`, `is_byzantine` (of the sender), `round` (the stamp),
        `true_round`, `original` (of a copy), `size_bytes`, `sent_s`, `delivered_s`, `lost_s`, `used_s`,
        `dropped_s`, `delay_s`, `outcome` (used, lost, stale, duplicate, rejected, left over, in flight),
        `reason`, `age`, `weight`, `distance_to_own`, `distance_to_predicted`.
        """
        return messages_and_rounds.messages(self.events(*messages_and_rounds.MESSAGE_EVENTS), self.byzantine)

    @property
    def rounds(self) -> pl.LazyFrame:
        """One row per round started by a client.

        `client`, `round`, `is_byzantine`, `started_s`, `trained_s`, `finished_s`, `duration_s` and `loss` of
        the training, `num_used`, `max_age`, and the diagnostics of the method: `tau`, `delta_norm`, ...
        """
        return messages_and_rounds.rounds(self.events(*messages_and_rounds.ROUND_EVENTS), self.byzantine)

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


def last_evaluations(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the last row of each client."""
    return metrics.group_by("client", maintain_order=True).last().sort("client")
