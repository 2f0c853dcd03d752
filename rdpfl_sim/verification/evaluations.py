"""Checks of evaluations, and of metrics.csv against the records."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from rdpfl_sim.records.metrics_file import HEADER, METRICS
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.record_types import (
    Evaluated,
    RoundFinished,
    RunFinished,
    RunStarted,
    TrainingStarted,
)
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.telemetry import OF_MESSAGES, RecomputedTelemetry

END = "\n"


class EvaluationChecks:
    """Compares each evaluation with its row of metrics.csv. Runs after `RecomputedTelemetry`."""

    def __init__(
        self, reader: RunReader, scenario: Scenario, clients: ClientChecks, telemetry: RecomputedTelemetry
    ) -> None:
        self.evaluations = Check(
            "evaluations",
            "Every client is evaluated when due, after a finished round, and metrics.csv agrees with "
            "the records.",
            Needs.RECORDS,
        )
        self.checks = [self.evaluations]
        self.every, self.last_round = scenario.evaluation.every, scenario.rounds
        self.clients, self.telemetry = clients, telemetry
        self.unknown = () if telemetry.knows_messages else OF_MESSAGES
        self.lines = reader.metrics_lines() if reader.has_metrics() else iter(())
        self.due: dict[tuple[int, int], float] = {}
        """The clients and rounds to be evaluated before simulated time advances, with the due time."""

    def run_started(self, record: RunStarted, line: int) -> None:
        """Check the header of metrics.csv."""
        head = next(self.lines, "")
        if head != HEADER + END:
            self.evaluations.violated(line, f"metrics.csv has the header {head!r}")

    def evaluated(self, record: Evaluated, line: int) -> None:
        """Check that the evaluation was due, and check its row of metrics.csv."""
        client = record["client"]
        self.evaluations.num_items += 1
        state = self.clients.states[client]
        state.is_untested = False
        due_s = self.due.pop((client, record["round"]), None)
        if due_s is None and record["round"] != state.last_round:
            self.evaluations.violated(
                line, f"the last finished round of client {client} is {state.last_round}"
            )
        text = next(self.lines, None)
        if text is None:
            self.evaluations.violated(line, "metrics.csv has no row for this evaluation")
        else:
            self._compare(text, line)

    def round_finished(self, record: RoundFinished, line: int) -> None:
        """Add an evaluation after this round, if one is due."""
        self._check_due(line, record["time_s"])
        if record["round"] % self.every == 0 or record["round"] == self.last_round:
            self.due[record["client"], record["round"]] = record["time_s"]

    def training_started(self, record: TrainingStarted, line: int) -> None:
        """Check that no earlier evaluation is missing."""
        self._check_due(line, record["time_s"])

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Check that no evaluation is missing, except at the last instant of an interrupted run."""
        self._check_due(line, record["time_s"] if record["status"] == RunStatus.INTERRUPTED else inf)
        untested = [client for client, state in enumerate(self.clients.states) if state.is_untested]
        if RunStatus(record["status"]).is_complete and untested:
            self.evaluations.violated(line, f"the last model of client {untested[0]} was not evaluated")
        if next(self.lines, None) is not None:
            self.evaluations.violated(line, "metrics.csv has more rows than there are evaluations")

    def _check_due(self, line: int, now_s: float) -> None:
        overdue = [which for which, since_s in self.due.items() if since_s < now_s]
        for client, round_ in overdue:
            self.evaluations.violated(line, f"client {client} was not evaluated after round {round_}")
            del self.due[client, round_]

    def _compare(self, text: str, line: int) -> None:
        """Compare a row with the expected row."""
        cells = text.removesuffix(END).split(",")
        if len(cells) != len(METRICS) or not text.endswith(END):
            self.evaluations.violated(line, f"metrics.csv contains an invalid row: {text!r}")
            return
        row = dict(self.telemetry.row)
        for key, cell in zip(METRICS, cells, strict=True):
            if key not in self.unknown and not _is_cell(row[key], cell, _is_measured(row, key)):
                self.evaluations.violated(line, f"metrics.csv has {key} = {cell!r}, not {row[key]!r}")


def _is_measured(row: Mapping[str, Any], key: str) -> bool:
    """Return whether a loss was measured; a loss that is not finite is recorded as null."""
    return key.endswith("_loss") and row[key.replace("_loss", "_accuracy")] is not None


def _is_cell(value: object, cell: str, is_measured: bool) -> bool:
    """Return whether a cell contains a value; NaN and infinity are null in the records."""
    if value is not None:
        return cell == str(value)
    return not isfinite(float(cell)) if is_measured and cell in ("nan", "inf", "-inf") else cell == ""
