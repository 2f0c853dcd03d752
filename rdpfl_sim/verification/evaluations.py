"""Whether metrics.csv is what the evaluations in the records say."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

from rdpfl_sim.records.folder import METRICS_FILE
from rdpfl_sim.records.telemetry import Tally
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs, Record

SCORES = ("time_s", "client", "round", "personal_accuracy", "personal_loss", "global_accuracy", "global_loss")


class Evaluations:
    """Reads metrics.csv beside the records, one row for one evaluation."""

    def __init__(self, folder: Path, scenario: Scenario, byzantine: frozenset[int]) -> None:
        self.evaluations = Check(
            "evaluations",
            "Every client is evaluated when it is due, and metrics.csv holds what the records say.",
            Needs.RECORDS,
        )
        self.checks = [self.evaluations]
        self.every, self.last_round = scenario.evaluation.every, scenario.rounds
        self.knows_ages = scenario.output.message_events == 1
        self.byzantine = byzantine
        self.rows = _rows(folder / METRICS_FILE)
        self.latest: dict[int, Record] = {}
        self.tallies: dict[int, Tally] = {}
        self.due: dict[int, Record] = {}
        """Rounds after which a client is to be tested before time goes on."""

    def evaluation(self, record: Record, line: int) -> None:
        """A client is evaluated."""
        client = record["client"]
        self.evaluations.num_items += 1
        self.latest[client] = {**record, "byzantine": int(client in self.byzantine)}
        if client in self.due and record["round"] == self.due[client]["round"]:
            del self.due[client]
        row = next(self.rows, None)
        if row is None:
            self.evaluations.violated(line, "metrics.csv has no row for this")
            return
        for key, value in self._expected(record).items():
            if not _is_cell(value, row.get(key)):
                self.evaluations.violated(line, f"metrics.csv says {key} = {row.get(key)!r}, not {value!r}")

    def round_finished(self, record: Record, line: int) -> None:
        """A client has lived one more round since its last evaluation."""
        self._miss(line, record["time_s"])
        tally = self.tallies.setdefault(record["client"], Tally())
        tally.num_rounds += 1
        tally.num_used += record["num_used"]
        tally.num_estimates += "tau" in record
        tally.num_clipped += bool(record.get("clipped"))
        tally.num_bounded += bool(record.get("bounded"))
        if record["round"] % self.every == 0 or record["round"] == self.last_round:
            self.due[record["client"]] = record

    def message_used(self, record: Record, line: int) -> None:
        """Ages add up."""
        self.tallies.setdefault(record["recipient"], Tally()).sum_age += record["age"]

    def training_started(self, record: Record, line: int) -> None:
        """Too late for evaluations of an earlier instant."""
        self._miss(line, record["time_s"])

    def run_finished(self, record: Record, line: int) -> None:
        """All rows have been read."""
        self._miss(line)
        if next(self.rows, None) is not None:
            self.evaluations.violated(line, "metrics.csv has more rows than there were evaluations")

    def _miss(self, line: int, now_s: float = inf) -> None:
        missed = [record for record in self.due.values() if record["time_s"] < now_s]
        for record in missed:
            client, round_ = record["client"], record["round"]
            self.evaluations.violated(line, f"client {client} was not evaluated after round {round_}")
            del self.due[client]

    def _expected(self, record: Record) -> dict[str, Any]:
        means = self.tallies.pop(record["client"], Tally()).means()
        known = ("used_per_round", "clipped", "bounded", *(["mean_age"] if self.knows_ages else []))
        return {
            **{key: record.get(key) for key in SCORES},
            "byzantine": int(record["client"] in self.byzantine),
            **{key: means[key] for key in known},
        }


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)


def _is_cell(value: Any, cell: str | None) -> bool:
    """Whether a cell holds a value; a number that JSON does not have is null in the records."""
    if cell is None:
        return False
    if value is not None:
        return cell == str(value)
    try:
        return cell == "" or not isfinite(float(cell))
    except ValueError:
        return False
