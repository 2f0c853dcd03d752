"""Verify a run folder in one pass over its records.

The checks follow the rules of the simulated world with code of their own. From the simulator they take its
words, such as the reasons for dropping a message, and what its components declare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rdpfl_sim.errors import RunError
from rdpfl_sim.files import lines_inside, size_inside
from rdpfl_sim.records.files import EVENTS
from rdpfl_sim.records.reader import parse_record
from rdpfl_sim.records.record_types import RECORDS
from rdpfl_sim.verification.check import INVARIANTS, Check, Needs
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.files import DigestCheck, FolderChecks, VerifiedFolder
from rdpfl_sim.verification.messages import MessageChecks
from rdpfl_sim.verification.models import ModelChecks
from rdpfl_sim.verification.rounds import EvaluationChecks, RoundChecks
from rdpfl_sim.verification.summary import DerivedTelemetry, SummaryChecks

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
        self.num_clients = scenario.clients.count
        self.checks = checks = {name: Check(name) for name in INVARIANTS if name != "replay"}
        self.folder, self.digest = FolderChecks(checks, files), DigestCheck(checks)
        self.clients = ClientChecks(checks, self.num_clients, files.edges, scenario.rounds)
        self.messages = MessageChecks(checks, scenario, self.clients, byzantine)
        self.telemetry = DerivedTelemetry(byzantine, scenario.output.message_events == 1)
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
            *(self.folder, self.models, self.summary),
        )
        handlers: dict[str, list[Callable[[Any, int], None]]] = {
            name: [getattr(part, name) for part in parts if callable(getattr(part, name, None))]
            for name in RECORDS
        }
        form, time, latest_s = self.checks["form"], self.checks["time"], 0.0
        first_event: str | None = None
        last_event: str | None = None
        with closing(lines_inside(self.events_path)) as file:
            for line, text in enumerate(file, start=1):
                form.num_items = time.num_items = line
                self.digest.add(text)
                try:
                    record = parse_record(text, self.num_clients)
                except RunError as error:
                    form.violated(line, str(error))
                    continue
                if record["time_s"] < latest_s:
                    where = f"{_named(record)} is at {record['time_s']} s"
                    time.violated(line, f"{where}, the previous record is at {latest_s} s")
                latest_s = record["time_s"]
                last_event = record["event"]
                first_event = first_event or last_event
                for handle in handlers[last_event]:
                    handle(record, line)
                if line % PROGRESS_EVERY == 0:
                    progress(line)
        if not text.endswith(b"\n"):
            form.violated(line, "the last line is incomplete")
        self.folder.compare_end(first_event, last_event, line)


def _named(record: Mapping[str, Any]) -> str:
    """Return the kind of a record with its message, or with its client and round."""
    keys = ("message",) if "message" in record else ("fault", "client", "round")
    return ", ".join([record["event"], *(f"{key} {record[key]}" for key in keys if key in record)])
