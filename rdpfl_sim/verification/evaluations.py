"""Whether metrics.csv is what the evaluations in the records say."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from rdpfl_sim.records.metrics_file import HEADER, METRICS
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs, Record
from rdpfl_sim.verification.clients import Clients
from rdpfl_sim.verification.telemetry import OF_MESSAGES, Measures

END = "\n"


class Evaluations:
    """Reads metrics.csv beside the records, one row for one evaluation, after `Measures` has seen that."""

    def __init__(self, reader: RunReader, scenario: Scenario, clients: Clients, measures: Measures) -> None:
        self.evaluations = Check(
            "evaluations",
            "Every client is evaluated when it is due, after a round that it has finished, "
            "and metrics.csv holds what the records say.",
            Needs.RECORDS,
        )
        self.checks = [self.evaluations]
        self.every, self.last_round = scenario.evaluation.every, scenario.rounds
        self.clients, self.measures = clients, measures
        self.unknown = () if measures.knows_messages else OF_MESSAGES
        self.lines = reader.metrics_lines() if reader.has_metrics() else iter(())
        self.due: dict[tuple[int, int], float] = {}
        """The clients and rounds that are to be evaluated before time goes on, and since when."""

    def run_started(self, record: Record, line: int) -> None:
        """The file begins with the names of its columns."""
        head = next(self.lines, "")
        if head != HEADER + END:
            self.evaluations.violated(line, f"metrics.csv begins with {head!r}")

    def evaluation(self, record: Record, line: int) -> None:
        """A client is evaluated."""
        client = record["client"]
        self.evaluations.num_items += 1
        life = self.clients.lives[client]
        life.is_untested = False
        due = self.due.pop((client, record["round"]), None)
        if due is None and record["round"] != life.last_round:
            self.evaluations.violated(
                line, f"the last round that client {client} has finished is {life.last_round}"
            )
        text = next(self.lines, None)
        if text is None:
            self.evaluations.violated(line, "metrics.csv has no row for this")
        else:
            self._compare(text, line)

    def round_finished(self, record: Record, line: int) -> None:
        """A client has lived one more round since its last evaluation."""
        self._miss(line, record["time_s"])
        if record["round"] % self.every == 0 or record["round"] == self.last_round:
            self.due[record["client"], record["round"]] = record["time_s"]

    def training_started(self, record: Record, line: int) -> None:
        """Too late for evaluations of an earlier instant."""
        self._miss(line, record["time_s"])

    def run_finished(self, record: Record, line: int) -> None:
        """All rows have been read; a run that was interrupted has not come to the end of the instant."""
        self._miss(line, record["time_s"] if record["status"] == RunStatus.INTERRUPTED else inf)
        untested = [client for client, life in enumerate(self.clients.lives) if life.is_untested]
        if RunStatus(record["status"]).is_complete and untested:
            self.evaluations.violated(line, f"the last model of client {untested[0]} was not evaluated")
        if next(self.lines, None) is not None:
            self.evaluations.violated(line, "metrics.csv has more rows than there were evaluations")

    def _miss(self, line: int, now_s: float) -> None:
        missed = [which for which, since_s in self.due.items() if since_s < now_s]
        for client, round_ in missed:
            self.evaluations.violated(line, f"client {client} was not evaluated after round {round_}")
            del self.due[client, round_]

    def _compare(self, text: str, line: int) -> None:
        """Hold a row against the one that it should be."""
        cells = text.removesuffix(END).split(",")
        if len(cells) != len(METRICS) or not text.endswith(END):
            self.evaluations.violated(line, f"metrics.csv says {text!r}: this is not such a row")
            return
        row = dict(self.measures.row)
        for key, cell in zip(METRICS, cells, strict=True):
            if key not in self.unknown and not _is_cell(row[key], cell, _is_measured(row, key)):
                self.evaluations.violated(line, f"metrics.csv says {key} = {cell!r}, not {row[key]!r}")


def _is_measured(row: Mapping[str, Any], key: str) -> bool:
    """Whether there is a number, also if JSON does not have it: the loss of a model that was tested."""
    return key.endswith("_loss") and row[key.replace("_loss", "_accuracy")] is not None


def _is_cell(value: Any, cell: str, is_measured: bool) -> bool:
    """Whether a cell holds a value; a number that JSON does not have is null in the records."""
    if value is not None:
        return cell == str(value)
    return not isfinite(float(cell)) if is_measured and cell in ("nan", "inf", "-inf") else cell == ""
