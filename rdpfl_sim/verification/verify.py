"""Verify a run folder in one pass over its records.

The checks follow the rules of the simulated world with code of their own. From the simulator they take its
words, such as the reasons for dropping a message, and what its components declare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from rdpfl_sim.files import lines_inside, size_inside
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.records.files import EVENTS
from rdpfl_sim.records.record_types import OPEN, RECORDS
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.recorder import MESSAGE_STREAM
from rdpfl_sim.verification.check import INVARIANTS, Check, Needs
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.files import (
    DerivedTelemetry,
    DigestCheck,
    FolderChecks,
    VerifiedFolder,
    hops_from,
)
from rdpfl_sim.verification.messages import MessageChecks
from rdpfl_sim.verification.models import ModelChecks
from rdpfl_sim.verification.rounds import EvaluationChecks, RoundChecks
from rdpfl_sim.verification.summary import SummaryChecks

FIELDS = {name: frozenset(getattr(kind, "__required_keys__")) for name, kind in RECORDS.items()}  # noqa: B009
"""The required fields of every record."""
OPTIONAL = {name: frozenset(kind.__annotations__) for name, kind in RECORDS.items()}
"""All declared fields of every record; only those in `OPEN` may have others."""

PROGRESS_EVERY = 50_000


def verify(folder: Path, progress: Callable[[int], None] = lambda num_records: None) -> list[Check]:
    """Return every check of a run, or raise `ScenarioError`, `RunError` or `OSError` if it cannot be read."""
    return Verification(folder).run(progress)


class Verification:
    """Passes the records of a run to the checks in the required order."""

    def __init__(self, folder: Path) -> None:
        self.files = files = VerifiedFolder(folder)
        scenario, byzantine = files.scenario, files.byzantine
        self.events_path, self.output = folder / EVENTS, scenario.output
        self.checks = checks = {name: Check(name) for name in INVARIANTS if name != "replay"}
        self.folder, self.digest = FolderChecks(checks, files), DigestCheck(checks)
        self.clients = ClientChecks(checks, scenario.clients.count, files.edges, scenario.rounds)
        self.messages = MessageChecks(checks, scenario, self.clients, byzantine, _sample(scenario))
        hops = hops_from(byzantine, self.clients.graph)
        self.telemetry = DerivedTelemetry(byzantine, hops, scenario.output.message_events == 1)
        self.rounds = RoundChecks(checks, scenario, self.clients, self.messages, byzantine, self.telemetry)
        self.evaluations = EvaluationChecks(
            checks, files.metrics, scenario, self.clients, byzantine, self.telemetry
        )
        self.models = ModelChecks(checks, folder, files)
        self.summary = SummaryChecks(checks, files, self.clients, self.telemetry)

    def run(self, progress: Callable[[int], None]) -> list[Check]:
        """Read all records and return the checks."""
        available = self._available_records()
        if available > Needs.NOTHING:
            self._read(progress)
        self.summary.compare(self.messages, has_records=available > Needs.NOTHING)
        self.digest.compare(self.files.summary)
        self.models.compare(has_records=available > Needs.NOTHING)
        for check in self.checks.values():
            check.limit(available)
        return list(self.checks.values())

    def _available_records(self) -> Needs:
        """Return the level of records that the run has written."""
        output, size = self.output, size_inside(self.events_path)
        if output.events != (size > 0):
            found, setting = ("records", "false") if size > 0 else ("no records", "true")
            self.folder.complete.violated(None, f"there are {found} although output.events is {setting}")
        if not output.events or size == 0:
            return Needs.NOTHING
        if output.message_events == 0:
            return Needs.RECORDS
        return Needs.MESSAGES if output.message_events < 1 else Needs.ALL_MESSAGES

    def _read(self, progress: Callable[[int], None]) -> None:
        # Rounds are checked against the state before the record changes it, evaluations after it.
        parts = (
            *(self.rounds, self.clients, self.messages, self.telemetry, self.evaluations),
            *(self.folder, self.models, self.summary, self.summary.theory),
        )
        handlers: dict[str, list[Callable[[Any, int], None]]] = {
            name: [getattr(part, name) for part in parts if callable(getattr(part, name, None))]
            for name in RECORDS
        }
        latest_s, form, time, line = 0.0, self.checks["form"], self.checks["time"], 0
        first_event: str | None = None
        last_event: str | None = None
        with closing(lines_inside(self.events_path)) as file:
            for line, text in enumerate(file, start=1):
                self.digest.add(text)
                try:
                    record = orjson.loads(text)
                    problem = _problem(record)
                    if problem is not None:
                        form.violated(line, problem)
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
                last_event = record["event"]
                first_event = first_event or last_event
        form.num_items = time.num_items = line
        if not text.endswith(b"\n"):
            form.violated(line, "the last line is incomplete")
        self.folder.compare_end(first_event, last_event, line)


def _problem(record: Mapping[str, Any]) -> str | None:
    """Return the problem with the fields of a record, or None."""
    event = record["event"]
    if event not in FIELDS:
        return f"unknown record {event!r}"
    if record.keys() == FIELDS[event]:
        return None
    missing, unexpected = FIELDS[event] - record.keys(), record.keys() - OPTIONAL[event]
    if missing:
        return f"{event} has no field {min(missing)}"
    return f"{event} has the unexpected field {min(unexpected)}" if unexpected and event not in OPEN else None


def _sample(scenario: Scenario) -> Callable[[int], bool]:
    """Return a function that returns whether the message with a number is recorded."""
    fraction, key = scenario.output.message_events, Streams(scenario.seed).key(MESSAGE_STREAM)
    return lambda number: fraction == 1 or uniform(key, number) < fraction
