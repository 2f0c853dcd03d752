"""Where the runs of a sweep happen: in worker processes of this machine.

Every run has a process of its own, so that one that crashes or is killed takes nothing with it. A run writes
into a folder that gets its name only when the run is complete.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from rdpfl_sim.scenario import Scenario
from rdpfl_sim.sweeps.plan import Run

REPORT_EVERY_S = 0.2


class Watcher(Protocol):
    """Somebody who wants to know how far the sweep is."""

    def started(self, run: Run) -> None:
        """A run begins."""

    def advanced(self, run: Run, fraction: float) -> None:
        """So much of a run is done."""

    def ended(self, run: Run, error: str | None) -> None:
        """A run is complete, or has failed."""


@dataclass
class Worker:
    """A process with its run, and the end of the pipe on which it reports."""

    process: Any
    reports: Connection
    run: Run
    error: str | None = None


def folder_of(run: Run, output: Path) -> Path:
    """Where a complete run is."""
    return output / run.key


def missing(runs: Iterable[Run], output: Path) -> list[Run]:
    """The runs that are not complete yet, each scenario once."""
    return list({run.key: run for run in runs if not folder_of(run, output).exists()}.values())


def run_in_processes(runs: Sequence[Run], output: Path, num_workers: int, watcher: Watcher) -> None:
    """Run all, so many at a time, each with one torch thread; what fails does not stop the rest."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rdpfl_sim.sweeps.engine", "rdpfl_sim.simulation"])
    waiting, workers = deque(runs), list[Worker]()
    try:
        while waiting or workers:
            while waiting and len(workers) < num_workers:
                workers.append(_start(context, waiting.popleft(), output))
                watcher.started(workers[-1].run)
            wait([worker.reports for worker in workers])
            for worker in list(workers):
                if not _listen(worker, watcher):
                    workers.remove(worker)
                    worker.process.join()
                    watcher.ended(worker.run, _outcome(worker, output))
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()


def run_into(scenario: Scenario, folder: Path, progress: Any = None) -> str | None:
    """Run one scenario into a folder that appears when it is complete; the error, if it has failed."""
    from rdpfl_sim.simulation import simulate

    parent = folder.parent / ".running"
    try:
        result = simulate(scenario, parent, progress)
        assert result.folder is not None
        if result.summary["status"] == "interrupted":
            shutil.rmtree(result.folder)
            return "interrupted"
        with suppress(OSError):  # somebody else has completed the same run
            result.folder.rename(folder)
        shutil.rmtree(result.folder, ignore_errors=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class _Reporter:
    """Sends the fraction of a run that is done, not too often."""

    def __init__(self, reports: Connection, total: int) -> None:
        self.reports = reports
        self.total = total
        self.last = 0.0

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """A client has finished the training of a round."""
        now = time.monotonic()
        if now - self.last >= REPORT_EVERY_S:
            self.last = now
            self.reports.send(rounds_done / self.total)


def _start(context: Any, run: Run, output: Path) -> Worker:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_work, args=(run.scenario.to_dict(), str(folder_of(run, output)), theirs), daemon=True
    )
    process.start()
    theirs.close()  # so that our end is closed when the process ends, however it ends
    return Worker(process, ours, run)


def _work(raw: dict[str, Any], folder: str, reports: Connection) -> None:
    """The life of a worker process."""
    scenario = Scenario.from_dict(raw)
    total = scenario.rounds * scenario.clients.count
    error = run_into(scenario, Path(folder), _Reporter(reports, total))
    if error is not None:
        reports.send(error)


def _listen(worker: Worker, watcher: Watcher) -> bool:
    """Hear what a worker has to say; False if it will say nothing more."""
    try:
        while worker.reports.poll():
            report = worker.reports.recv()
            if isinstance(report, str):
                worker.error = report
            else:
                watcher.advanced(worker.run, report)
    except EOFError:
        return False
    return True


def _outcome(worker: Worker, output: Path) -> str | None:
    """Why a run is not complete, or None."""
    if folder_of(worker.run, output).exists():
        return None
    return worker.error or f"its process ended with exit code {worker.process.exitcode}"
