"""Verify a run folder in one pass over its records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from rdpfl_sim.errors import RunError
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.records.digest import MESSAGE_PREFIX
from rdpfl_sim.records.record_types import RECORDS
from rdpfl_sim.records.recorder import MESSAGE_STREAM
from rdpfl_sim.records.run_folder import EVENTS
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.system.files import lines_inside, size_inside
from rdpfl_sim.verification.check import Check, Needs
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.estimates import EstimateChecks
from rdpfl_sim.verification.evaluations import EvaluationChecks
from rdpfl_sim.verification.files import FileChecks, VerifiedFolder
from rdpfl_sim.verification.messages import MessageChecks
from rdpfl_sim.verification.record_format import RecordFormat
from rdpfl_sim.verification.rounds import RoundChecks
from rdpfl_sim.verification.summary import DigestCheck, SummaryChecks
from rdpfl_sim.verification.telemetry import RecomputedTelemetry
from rdpfl_sim.verification.theory import RecomputedTheory
from rdpfl_sim.world.adversary.threat_model import hops_to

PROGRESS_EVERY = 50_000


def verify(folder: Path, progress: Callable[[int], None] = lambda num_records: None) -> list[Check]:
    """Return every check of a run, or raise `ScenarioError` or `OSError` if its files cannot be read."""
    return Verification(folder).run(progress)


class Verification:
    """Passes the records of a run to the checks in the required order."""

    def __init__(self, folder: Path) -> None:
        files = VerifiedFolder(folder)
        self.scenario = scenario = files.scenario
        self.reader, self.events_path = files.reader, folder / EVENTS
        byzantine = files.byzantine
        self.summary = files.summary
        self.form = Check(
            "form",
            "Every line is a known record with the right fields.",
            Needs.RECORDS,
        )
        self.time = Check("time", "Simulated time never decreases.", Needs.RECORDS)
        self.format = RecordFormat(scenario.output.telemetry)
        self.digest = DigestCheck()
        self.files = FileChecks(files)
        self.totals = SummaryChecks(files)
        self.clients = ClientChecks(scenario.clients.count, files.graph.edges, scenario.rounds)
        self.messages = MessageChecks(scenario, self.clients, byzantine, _sample(scenario))
        self.rounds = RoundChecks(scenario, self.clients, self.messages, byzantine)
        self.telemetry = RecomputedTelemetry(scenario, byzantine, hops_to(files.graph, byzantine))
        self.estimates = EstimateChecks(scenario, self.clients, self.telemetry)
        self.theory = RecomputedTheory(scenario)
        self.evaluations = EvaluationChecks(files.reader, scenario, self.clients, self.telemetry)
        self.first_event: str | None = None
        self.last_event: str | None = None
        self.num_lines = 0

    @property
    def checks(self) -> list[Check]:
        """All checks in the order of the table."""
        parts = (
            *(self.files, self.totals, self.digest, self.clients, self.messages, self.rounds),
            *(self.estimates, self.evaluations),
        )
        return [self.form, self.time, *(check for part in parts for check in part.checks)]

    def run(self, progress: Callable[[int], None]) -> list[Check]:
        """Read all records and return the checks."""
        available = self._available_records()
        if available > Needs.NOTHING:
            self._read(progress)
            self.totals.compare_end(self.first_event, self.last_event, self.num_lines)
        else:
            self._read_metrics()
        self.totals.compare_summary(self.last_event, self.clients, self.telemetry, self.theory, self.digest)
        self.totals.compare_counts(self.messages)
        self.digest.compare(self.summary)
        for check in self.checks:
            check.limit(available)
        return self.checks

    def _available_records(self) -> Needs:
        """Return the level of records that the run has written."""
        output = self.scenario.output
        size = size_inside(self.events_path)
        if output.events and size == 0:
            self.totals.complete.violated(None, "there are no records although output.events is true")
        elif size > 0 and not output.events:
            self.totals.complete.violated(None, "there are records although output.events is false")
        if not output.events or size == 0:
            return Needs.NOTHING
        if output.message_events == 0:
            return Needs.RECORDS
        return Needs.MESSAGES if output.message_events < 1 else Needs.ALL_MESSAGES

    def _read_metrics(self) -> None:
        """Read the scores from metrics.csv because there are no records."""
        try:
            for row in self.reader.read_metrics():
                scores = {
                    key: value for key, value in row.items() if key not in ("time_s", "client", "round")
                }
                self.telemetry.scores.add(row["time_s"], row["client"], row["round"], scores)
        except (OSError, RunError, LookupError, TypeError, ValueError) as error:
            self.totals.complete.violated(None, f"metrics.csv cannot be read: {error}")

    def _read(self, progress: Callable[[int], None]) -> None:
        # Rounds are checked against the state before the record changes it; evaluations are checked after
        # the estimates have been counted.
        parts = (
            *(self.rounds, self.clients, self.messages, self.estimates, self.telemetry, self.theory),
            *(self.evaluations, self.files, self.totals),
        )
        handlers: dict[str, list[Callable[[Any, int], None]]] = {
            name: [getattr(part, name) for part in parts if hasattr(part, name)] for name in RECORDS
        }
        problem_of = self.format.problem_of
        latest_s, form, time, add, line = 0.0, self.form, self.time, self.digest.add, 0
        with closing(lines_inside(self.events_path)) as file:
            for line, text in enumerate(file, start=1):
                if not text.startswith(MESSAGE_PREFIX):
                    add(text)
                try:
                    record = orjson.loads(text)
                    problem = problem_of(record, text)
                    if problem is not None:
                        form.violated(line, f"a run does not write this record: {problem}")
                    if record["time_s"] < latest_s:
                        time.violated(line, f"the previous record is at {latest_s} s")
                    latest_s = record["time_s"]
                    for handle in handlers.get(record["event"], ()):
                        handle(record, line)
                except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
                    form.violated(line, f"invalid record ({type(error).__name__}: {error})")
                    continue
                if line % PROGRESS_EVERY == 0:
                    progress(line)
                self.last_event = record["event"]
                self.first_event = self.first_event or self.last_event
        self.num_lines = form.num_items = time.num_items = line
        if line and not text.endswith(b"\n"):
            form.violated(line, "the last line is incomplete")


def _sample(scenario: Scenario) -> Callable[[int], bool]:
    """Return a function that returns whether the message with a number is recorded."""
    fraction, key = scenario.output.message_events, Streams(scenario.seed).key(MESSAGE_STREAM)
    return lambda number: fraction == 1 or uniform(key, number) < fraction
