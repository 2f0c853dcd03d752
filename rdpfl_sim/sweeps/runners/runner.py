"""The interface of sweep runners and of their listeners, and the execution of one run."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rdpfl_sim.scenario.toml_file import TomlTable
    from rdpfl_sim.sweeps.plan import PlannedRun

REPORT_EVERY_S = 0.5
LOG = "log.txt"


class SweepListener(Protocol):
    """Receives the progress of a sweep."""

    def started(self, run: PlannedRun) -> None:
        """Handle the start of a run."""

    def advanced(self, run: PlannedRun, fraction: float) -> None:
        """Handle the progress of a run; `fraction` is from 0 to 1."""

    def ended(self, run: PlannedRun, error: str | None) -> None:
        """Handle the end of a run: complete, or failed with an error message."""


class Runner(Protocol):
    """Executes many scenarios in parallel, each with one torch thread."""

    def prepare(self) -> None:
        """Start slow preparations in the background; raise a `ScenarioError` if a package is missing."""

    def run(self, runs: Sequence[PlannedRun], output: Path, listener: SweepListener) -> None:
        """Execute all runs; a run that fails does not stop the others.

        The folder of a run appears in `output` when the run is complete. SIGINT and SIGTERM stop and discard
        incomplete runs, and raise KeyboardInterrupt.
        """

    def close(self) -> None:
        """Release the resources shared by all runs."""


def run_one(raw: TomlTable, parent: Path, report: Callable[[float], None]) -> str | None:
    """Run a scenario in a new folder inside the new folder `parent`; return an error message if it fails.

    All output of the run, and the traceback of an error, is written to log.txt in `parent`.
    """
    from rdpfl_sim.records.status import RunStatus
    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.simulation.simulation import simulate

    try:
        parent.mkdir(parents=True)
        with (parent / LOG).open("w", encoding="utf-8") as log, _output_to(log):
            scenario = Scenario.from_dict(raw)
            progress = _FractionReporter(report, scenario.rounds * scenario.clients.count)
            result = simulate(scenario, parent, progress)
    except Exception as error:
        return _one_line(error)
    return "interrupted by a signal" if result.summary["status"] == RunStatus.INTERRUPTED else None


class _FractionReporter:
    """Reports the progress of a run, at most every `REPORT_EVERY_S` seconds."""

    def __init__(self, report: Callable[[float], None], total: int) -> None:
        self.report = report
        self.total = total
        self.last = time.monotonic()

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Report the finished fraction of all rounds of all clients."""
        now = time.monotonic()
        if now - self.last >= REPORT_EVERY_S:
            self.last = now
            self.report(rounds_done / self.total)


@contextmanager
def _output_to(log: IO[str]) -> Iterator[None]:
    """Redirect stdout and stderr of the process, C libraries included, and any traceback to a file."""
    originals = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    for descriptor, _ in originals:
        os.dup2(log.fileno(), descriptor)
    try:
        yield
    except Exception:
        traceback.print_exc(file=log)
        raise
    finally:
        for descriptor, original in originals:
            os.dup2(original, descriptor)
            os.close(original)


def _one_line(error: Exception) -> str:
    """Return an error on one line, even if its `__str__` fails."""
    message = str(traceback.TracebackException.from_exception(error))
    return f"{type(error).__name__}: {'; '.join(message.splitlines())}"
