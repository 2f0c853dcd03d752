"""One pass over a run's records, past everybody who checks something."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import orjson

from rdpfl_sim.errors import RunError
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.records.digest import MESSAGE_PREFIX
from rdpfl_sim.records.events import MESSAGE_STREAM
from rdpfl_sim.records.run_folder import EVENTS
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.system.files import lines_inside, size_inside
from rdpfl_sim.verification.check import Check, Needs, Record
from rdpfl_sim.verification.clients import Clients
from rdpfl_sim.verification.evaluations import Evaluations
from rdpfl_sim.verification.files import Files
from rdpfl_sim.verification.messages import Post
from rdpfl_sim.verification.record_schema import FIELDS, Forms
from rdpfl_sim.verification.rounds import Rounds
from rdpfl_sim.verification.telemetry import Measures
from rdpfl_sim.verification.theory import Theory
from rdpfl_sim.verification.totals import Chain, Whole
from rdpfl_sim.world.adversary.threat_model import hops_to

PROGRESS_EVERY = 50_000


def verify(folder: Path, progress: Callable[[int], None] = lambda num_records: None) -> list[Check]:
    """Every check of a run; a `ScenarioError` or an `OSError` if its files cannot be read."""
    return Verification(folder).run(progress)


class Verification:
    """The records of one run, and all who look at them, in the order in which they have to."""

    def __init__(self, folder: Path) -> None:
        files = Files(folder)
        self.scenario = scenario = files.scenario
        self.reader, self.events_path = files.reader, folder / EVENTS
        byzantine = files.byzantine
        self.summary = files.summary
        self.form = Check(
            "form",
            "Every line is a record, in the form in which a run writes it: known fields of known events.",
            Needs.RECORDS,
        )
        self.time = Check("time", "Time never goes backwards.", Needs.RECORDS)
        self.forms = Forms(scenario.output.telemetry)
        self.chain = Chain()
        self.whole = Whole(files)
        self.clients = Clients(scenario.clients.count, files.graph.edges, scenario.rounds)
        self.post = Post(scenario, self.clients, byzantine, _sample(scenario))
        self.rounds = Rounds(scenario, self.clients, self.post, byzantine)
        self.measures = Measures(scenario, byzantine, hops_to(files.graph, byzantine))
        self.theory = Theory(scenario)
        self.evaluations = Evaluations(files.reader, scenario, self.clients, self.measures)
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
        else:
            self._read_metrics()
        self.whole.compare_summary(self.last, self.clients, self.measures, self.theory, self.chain)
        self.whole.compare_counts(self.post)
        self.chain.compare(self.summary)
        for check in self.checks:
            check.limit(extent)
        return self.checks

    def _extent(self) -> Needs:
        """How much the run has written down."""
        output = self.scenario.output
        size = size_inside(self.events_path)
        if output.events and size == 0:
            self.whole.complete.violated(None, "there are no records, although output.events is true")
        elif size > 0 and not output.events:
            self.whole.complete.violated(None, "there are records, although output.events is false")
        if not output.events or size == 0:
            return Needs.NOTHING
        if output.message_events == 0:
            return Needs.RECORDS
        return Needs.MESSAGES if output.message_events < 1 else Needs.ALL_MESSAGES

    def _read_metrics(self) -> None:
        """Take the scores from metrics.csv, as there are no records."""
        try:
            for row in self.reader.read_metrics():
                scores = {
                    key: value for key, value in row.items() if key not in ("time_s", "client", "round")
                }
                self.measures.scores.add(row["time_s"], row["client"], row["round"], scores)
        except (OSError, RunError, LookupError, TypeError, ValueError) as error:
            self.whole.complete.violated(None, f"metrics.csv cannot be read: {error}")

    def _read(self, progress: Callable[[int], None]) -> None:
        # Rounds first: it looks at what the others know before the same record changes that.
        parts = (
            *(self.rounds, self.clients, self.post, self.measures, self.theory, self.evaluations),
            self.whole,
        )
        lookers: dict[str, list[Callable[[Record, int], None]]] = {
            name: [getattr(part, name) for part in parts if hasattr(part, name)] for name in FIELDS
        }
        fault_of = self.forms.fault_of
        latest_s, form, time, add, line = 0.0, self.form, self.time, self.chain.add, 0
        with closing(lines_inside(self.events_path)) as file:
            for line, text in enumerate(file, start=1):
                if not text.startswith(MESSAGE_PREFIX):
                    add(text)
                try:
                    record = orjson.loads(text)
                    fault = fault_of(record, text)
                    if fault is not None:
                        form.violated(line, f"this is not a record that a run writes: {fault}")
                    if record["time_s"] < latest_s:
                        time.violated(line, f"it was {latest_s} s before")
                    latest_s = record["time_s"]
                    for look in lookers.get(record["event"], ()):
                        look(record, line)
                except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
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


def _sample(scenario: Scenario) -> Callable[[int], bool]:
    """Whether the message with a number is recorded."""
    fraction, key = scenario.output.message_events, Streams(scenario.seed).key(MESSAGE_STREAM)
    return lambda number: fraction == 1 or uniform(key, number) < fraction
