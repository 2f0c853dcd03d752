"""The records of one run, whether it has ended, failed, was interrupted or still goes on."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from rdpfl_sim.errors import RunError
from rdpfl_sim.frames import messages_and_rounds as lives
from rdpfl_sim.frames.events import EVENTS, EVERY, scan, whole_lines
from rdpfl_sim.records.run_folder import EVENTS as EVENTS_FILE
from rdpfl_sim.records.run_folder import (
    METRICS,
    METRICS_FILE,
    PROVENANCE,
    SCENARIO,
    SUMMARY,
    TOPOLOGY,
    is_complete,
    read_json_if_there,
    run_folder_problem,
)
from rdpfl_sim.scenario.toml_file import read_toml
from rdpfl_sim.system.files import size_inside

WHOLE = {"client": pl.Int32, "byzantine": pl.Int8, "round": pl.Int64, "hops": pl.Int32}
METRIC_KINDS: dict[str, Any] = {name: WHOLE.get(name, pl.Float64) for name in METRICS}


class Run:
    """A run folder. Small files are read when first asked for; `events`, `messages` and `rounds` are lazy."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        reason = run_folder_problem(self.folder)
        if reason is not None:
            raise RunError(reason)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario: every option with its value."""
        return read_toml(self.folder / SCENARIO, follow_links=False)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What came out: of a failed run `status` and `error`, of an unfinished one nothing."""
        return read_json_if_there(self.folder / SUMMARY) or {}

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Commit, versions, command, machine; nothing if there is no provenance.json."""
        return read_json_if_there(self.folder / PROVENANCE) or {}

    @cached_property
    def topology(self) -> dict[str, Any]:
        """`num_clients`, `edges` and `byzantine`, at the beginning of the run."""
        found = read_json_if_there(self.folder / TOPOLOGY)
        count = self.scenario.get("clients", {}).get("count", 0)
        return found or {"num_clients": count, "edges": [], "byzantine": []}

    @property
    def status(self) -> str:
        """`finished`, `out of time`, `interrupted`, `failed`, or `unfinished` if it runs or was killed."""
        return str(self.summary.get("status", "unfinished"))

    @property
    def byzantine(self) -> frozenset[int]:
        """Who lies."""
        return frozenset(self.topology["byzantine"])

    @property
    def num_clients(self) -> int:
        """How many clients there are, absent ones included."""
        return int(self.topology["num_clients"])

    @property
    def has_events(self) -> bool:
        """Whether anything was written down (`output.events`)."""
        return size_inside(self.folder / EVENTS_FILE) > 0

    @property
    def message_fraction(self) -> float:
        """Which part of all messages is in the records (`output.message_events`)."""
        return float(self.scenario.get("output", {}).get("message_events", 1.0)) if self.has_events else 0.0

    @property
    def metrics(self) -> pl.DataFrame:
        """One row per client and evaluation: metrics.csv, with `is_byzantine` for 0 and 1.

        Columns that the run's version did not write are null.
        """
        path = self.folder / METRICS_FILE
        content = whole_lines(path) if path.exists() else b""
        rows = pl.DataFrame(schema=METRIC_KINDS)
        if content:
            rows = pl.concat([rows, pl.read_csv(content, schema_overrides=METRIC_KINDS)], how="diagonal")
        place = rows.columns.index("byzantine")
        is_byzantine = rows.drop_in_place("byzantine").cast(pl.Boolean).rename("is_byzantine")
        return rows.insert_column(place, is_byzantine)

    @property
    def latest(self) -> pl.DataFrame:
        """Every client's last evaluation."""
        return self.metrics.group_by("client", maintain_order=True).last().sort("client")

    @property
    def messages(self) -> pl.LazyFrame:
        """One row for every message that is in the records, copies included.

        `message` (its number), `sender`, `recipient`, `is_byzantine` (the sender), `round` (the stamp),
        `true_round`, `original` (of a copy), `size_bytes`, `sent_s`, `delivered_s`, `lost_s`, `used_s`,
        `dropped_s`, `delay_s`, `fate` (used, lost, stale, duplicate, rejected, left over, in flight),
        `reason`, `age`, `weight`, `distance_to_own`, `distance_to_predicted`, `clipped`.
        """
        return lives.messages(self.events(*lives.MESSAGE_EVENTS), self.byzantine)

    @property
    def rounds(self) -> pl.LazyFrame:
        """One row for every round that a client has begun.

        `client`, `round`, `is_byzantine`, `started_s`, `trained_s`, `finished_s`, `duration_s` and `loss` of
        the training, `num_used`, `max_age`, and what the method tells: `tau`, `delta_norm`, `clipped`, ...
        """
        return lives.rounds(self.events(*lives.ROUND_EVENTS), self.byzantine)

    @property
    def faults(self) -> pl.DataFrame:
        """One row a change: `time_s`, `fault` (its place in the scenario), `change`, and whom it concerns."""
        return self.events("fault").drop("event").collect()

    def events(self, *names: str) -> pl.LazyFrame:
        """The records with these names, or all, with all their fields; null where a record lacks one."""
        if not self.has_events:
            fields = {field: kind for name in names or EVENTS for field, kind in EVENTS.get(name, {}).items()}
            return pl.LazyFrame(schema={**EVERY, **fields})
        return scan(self.folder / EVENTS_FILE, names, grows=not is_complete(self.folder))
