"""The interface of runners and of their listeners, the execution of one run, and folders of unfinished runs.

This module must import quickly, because the module that starts worker processes imports it (see
`process_runner`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol

from rdpfl_sim.errors import RunError
from rdpfl_sim.files import JsonObject, check_folder, make_folder, open_to_append, read_json
from rdpfl_sim.records.files import RUNS, SUMMARY
from rdpfl_sim.records.schema import check_schema

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun
    from rdpfl_sim.toml import TomlTable

REPORT_EVERY_S = 0.5
LOG = "log.txt"
RUNNING = ".running"
FAILED = "failed"
LOCK = "lock"
DAMAGED = "damaged"


def folder_of(run: PlannedRun, output: Path) -> Path:
    """Return the folder of a complete run."""
    return output / RUNS / run.key


def read_summary(run: PlannedRun, output: Path) -> JsonObject | None:
    """Return the summary of a complete run, or None if summary.json is missing or unreadable.

    Raise `SchemaError` if the run was written by a version with a different schema.
    """
    folder = folder_of(run, output)
    try:
        summary = read_json(folder / SUMMARY)
    except (OSError, RunError):
        return None
    if not summary:
        return None
    check_schema(folder)
    return summary


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


class StagingFolder:
    """A folder in the sweep's output that belongs to one sweep process while it runs."""

    def __init__(self, output: Path, path: Path) -> None:
        self.output = output
        self.path = path

    def path_for(self, run: PlannedRun) -> Path:
        """Return a path for a run; it does not exist yet."""
        return self.path / run.key

    def finish(self, run: PlannedRun, error: str | None) -> str | None:
        """Move an ended run to the complete or failed runs; return its error with the path to its files."""
        staged, failed = self.path_for(run), self.output / FAILED / run.key
        shutil.rmtree(failed, ignore_errors=True)  # left by an earlier attempt
        if error is None:
            [folder] = [path for path in staged.iterdir() if path.is_dir()]
            complete = folder_of(run, self.output)
            if complete.exists() and read_summary(run, self.output) is None:
                complete.rename(staged / DAMAGED)  # removed together with `staged`
            make_folder(complete.parent)
            with suppress(OSError):  # another sweep has completed the same run
                folder.rename(complete)
            shutil.rmtree(staged)
            return None
        if not staged.exists():  # the run failed before it wrote anything
            return error
        make_folder(failed.parent)
        staged.rename(failed)
        return f"{error}; its files are in {failed}"


@contextmanager
def staging_folder(output: Path) -> Iterator[StagingFolder]:
    """Create a staging folder in a sweep's output; remove it at the end."""
    for name in (RUNS, FAILED):
        check_folder(output / name)
    with locked_folder(output / RUNNING) as path:
        yield StagingFolder(output, path)


@contextmanager
def locked_folder(parent: Path) -> Iterator[Path]:
    """Create a folder inside `parent` and remove it at the end; first remove folders of dead processes.

    Several processes may have folders in `parent`. Each process locks its folder, so a folder without a lock
    is abandoned.
    """
    parent.parent.mkdir(parents=True, exist_ok=True)
    make_folder(parent)
    with open_to_append(parent / LOCK) as parent_lock:
        with suppress(OSError):  # a file system without locks: nothing is removed there
            fcntl.flock(parent_lock, fcntl.LOCK_EX)  # a new folder is unlocked for a moment
        for path in parent.iterdir():
            if path.is_dir() and not path.is_symlink() and _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
        folder = Path(mkdtemp(dir=parent))
        lock = open_to_append(folder / LOCK)
        _try_lock(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def _is_abandoned(path: Path) -> bool:
    with open_to_append(path / LOCK) as lock:
        return _try_lock(lock)


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
