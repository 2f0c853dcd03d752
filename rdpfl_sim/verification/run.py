"""One pass over a run's records, past everybody who checks something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson

from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.records.folder import (
    EVENTS,
    PROVENANCE,
    SCENARIO,
    SUMMARY,
    TOPOLOGY,
    read_json,
    read_json_if_there,
)
from rdpfl_sim.records.recorder import MESSAGE_STREAM
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs, Record
from rdpfl_sim.verification.clients import Clients
from rdpfl_sim.verification.evaluations import Evaluations
from rdpfl_sim.verification.post import Post
from rdpfl_sim.verification.rounds import Rounds
from rdpfl_sim.verification.whole import Chain, Whole

PROGRESS_EVERY = 50_000
SINGLE_MESSAGE = b'{"event":"message_'
"""How the records begin that the digest does not cover."""


def verify(folder: Path, progress: Callable[[int], None] = lambda num_records: None) -> list[Check]:
    """Every check of a run; a `ScenarioError` or an `OSError` if its files cannot be read."""
    return Verification(folder).run(progress)


class Verification:
    """The records of one run, and all who look at them, in the order in which they have to."""

    def __init__(self, folder: Path) -> None:
        self.scenario = scenario = Scenario.load(folder / SCENARIO)
        self.events_path = folder / EVENTS
        topology = read_json(folder / TOPOLOGY)
        self.summary = read_json_if_there(folder / SUMMARY)
        byzantine = frozenset(topology["byzantine"])
        self.form = Check(
            "form", "Every line is a record: a JSON object with a name, a time and its fields.", Needs.RECORDS
        )
        self.time = Check("time", "Time never goes backwards.", Needs.RECORDS)
        self.chain = Chain()
        self.whole = Whole(scenario, read_json_if_there(folder / PROVENANCE), topology, self.summary)
        self.clients = Clients(topology["num_clients"], topology["edges"], scenario.rounds)
        self.post = Post(self.clients, byzantine, _sample(scenario))
        self.rounds = Rounds(scenario, self.clients, self.post, byzantine)
        self.evaluations = Evaluations(folder, scenario, byzantine)
        self.first: Record | None = None
        self.last: Record | None = None
        self.num_lines = 0

    @property
    def checks(self) -> list[Check]:
        """All of them, in the order of the table."""
        parts = (self.whole, self.chain, self.clients, self.post, self.rounds, self.evaluations)
        return [self.form, self.time, *(check for part in parts for check in part.checks)]

    def run(self, progress: Callable[[int], None]) -> list[Check]:
        """Read all records."""
        extent = self._extent()
        if extent > Needs.NOTHING:
            self._read(progress)
            self.whole.compare_end(
                self.last, self.num_lines, (self.first or {}).get("event") == "run_started"
            )
            if self.last is not None:
                self.whole.compare_summary(self.last, self.num_lines, self.clients, self.evaluations)
        self.whole.compare_counts(self.post)
        self.chain.compare(self.summary)
        for check in self.checks:
            check.limit(extent)
        return self.checks

    def _extent(self) -> Needs:
        """How much the run has written down."""
        output = self.scenario.output
        if not output.events or not self.events_path.exists():
            return Needs.NOTHING
        if output.message_events == 0:
            return Needs.RECORDS
        return Needs.MESSAGES if output.message_events < 1 else Needs.ALL_MESSAGES

    def _read(self, progress: Callable[[int], None]) -> None:
        # Rounds first: it looks at what the others know before the same record changes that.
        parts = (self.rounds, self.clients, self.post, self.evaluations, self.whole)
        lookers: dict[str, list[Callable[[Record, int], None]]] = {
            name: [getattr(part, name) for part in parts if hasattr(part, name)] for name in EVENT_NAMES
        }
        latest_s, form, time, add, line = 0.0, self.form, self.time, self.chain.add, 0
        with self.events_path.open("rb") as file:
            for line, text in enumerate(file, start=1):
                if not text.startswith(SINGLE_MESSAGE):
                    add(text)
                try:
                    record = orjson.loads(text)
                    if record["time_s"] < latest_s:
                        time.violated(line, f"it was {latest_s} s before")
                    latest_s = record["time_s"]
                    for look in lookers.get(record["event"], ()):
                        look(record, line)
                except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
                    form.violated(line, f"this is not such a record ({type(error).__name__}: {error})")
                    continue
                if line % PROGRESS_EVERY == 0:
                    progress(line)
                if self.first is None:
                    self.first = record
                self.last = record
        self.num_lines = form.num_items = time.num_items = line
        if line and not text.endswith(b"\n"):
            form.violated(line, "the last line is cut off")


EVENT_NAMES = (
    *("run_started", "training_started", "training_finished", "round_finished", "evaluation", "fault"),
    *(f"message_{fate}" for fate in ("sent", "copied", "lost", "delivered", "used")),
    *(f"message_{fate}" for fate in ("stale", "duplicate", "rejected")),
    "run_finished",
)
"""What the checks look at: they have methods of these names."""


def _sample(scenario: Scenario) -> Callable[[int], bool]:
    """Whether the message with a number is recorded."""
    fraction, key = scenario.output.message_events, Streams(scenario.seed).key(MESSAGE_STREAM)
    return lambda number: fraction == 1 or uniform(key, number) < fraction
