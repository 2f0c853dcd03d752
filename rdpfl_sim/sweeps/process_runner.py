"""Run a sweep in worker processes on this machine.

A worker runs several scenarios in sequence, so libraries and data are loaded once. If a worker dies, only its
current run is lost, and it is replaced. Workers are forked by a server that has imported torch. This
module imports no slow packages, so the server can import torch while this process does the same.

Each worker has its own pipe and shares no lock or queue with the others. A killed worker therefore cannot
block them, even if it is killed while it sends a message. A worker exits when its pipe is closed, so no
worker outlives the process that started it.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias

from rdpfl_sim.errors import RunError
from rdpfl_sim.simulation.signals import on_interrupt
from rdpfl_sim.sweeps.runner import StagingFolder, SweepListener, run_one, staging_folder

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun
    from rdpfl_sim.toml import TomlTable

CONTEXT = multiprocessing.get_context("forkserver")

MAX_STARTS = 3
"""Attempts to start a worker. The worker or the fork server may be killed during an attempt."""

EXIT_TIMEOUT_S = 5.0
"""Time for a worker to exit after its pipe is closed."""

Request: TypeAlias = "tuple[TomlTable, str]"
"""A scenario, and the folder in which to run it."""


class ProcessRunner:
    """A pool of worker processes."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers

    def prepare(self) -> None:
        """Start the fork server, which imports torch in the background."""
        CONTEXT.set_forkserver_preload(["rdpfl_sim.simulation.simulation"])
        # The server inherits the signal mask, so that only this process handles Ctrl-C.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """Do nothing: the fork server ends with this process."""

    def run(self, runs: Sequence[PlannedRun], output: Path, listener: SweepListener) -> None:
        """Execute all runs, each in one of the workers."""
        self.prepare()
        interrupted, interrupt = CONTEXT.Pipe(duplex=False)
        pending, workers = deque(runs), list[WorkerProcess]()
        with staging_folder(output) as staging, on_interrupt(lambda: interrupt.send(None)):
            try:
                while pending or workers:
                    while pending and len(workers) < self.num_workers:
                        workers.append(WorkerProcess(staging, listener))
                        workers[-1].start(pending.popleft())
                    wait([interrupted, *(event for worker in workers for event in worker.events)])
                    if interrupted.poll():
                        raise KeyboardInterrupt
                    for worker in list(workers):
                        if worker.finishes_run() and pending and worker.is_alive:
                            worker.start(pending.popleft())
                        elif worker.run is None:
                            workers.remove(worker)
                            worker.stop()
            finally:
                for worker in workers:
                    worker.process.kill()
                for worker in workers:
                    worker.stop()


class WorkerProcess:
    """A worker process, its current run, and the pipe for requests and reports."""

    def __init__(self, staging: StagingFolder, listener: SweepListener) -> None:
        self.staging = staging
        self.listener = listener
        self.run: PlannedRun | None = None
        self.connection, self.process = _start_process()

    @property
    def events(self) -> tuple[Connection, int]:
        """Handles to wait for: a report, or the end of the process."""
        return self.connection, self.process.sentinel

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.is_alive()

    def start(self, run: PlannedRun) -> None:
        """Send a run to the worker."""
        self.run = run
        self.listener.started(run)
        with suppress(OSError):  # the worker has died; `finishes_run` handles it
            self.connection.send((run.scenario.to_dict(), str(self.staging.path_for(run))))

    def finishes_run(self) -> bool:
        """Handle the worker's reports; return whether its run, or its process, has ended."""
        assert self.run is not None
        is_alive = self.is_alive  # checked first: reports sent before the end are still in the pipe
        try:
            while self.connection.poll():
                report: float | str | None = self.connection.recv()
                if isinstance(report, float):
                    self.listener.advanced(self.run, report)
                else:
                    return self._finish(report)
        except (EOFError, OSError):  # the process has ended, perhaps in the middle of a report
            is_alive = False
        return not is_alive and self._finish(_describe_exit(self._exit_code()))

    def stop(self) -> None:
        """Close the connection, which ends the process, and wait for its exit."""
        self.connection.close()
        self._exit_code()

    def _exit_code(self) -> int:
        """Wait for the process to exit, and kill it if it does not; return its exit code."""
        self.process.join(EXIT_TIMEOUT_S)
        if self.is_alive:
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        assert code is not None, "a process that was joined has an exit code"
        return code

    def _finish(self, error: str | None) -> bool:
        assert self.run is not None
        run, self.run = self.run, None
        self.listener.ended(run, self.staging.finish(run, error))
        return True


def _start_process() -> tuple[Connection, BaseProcess]:
    """Start a worker; return the connection to it and its process."""
    failures: list[Exception] = []
    while len(failures) < MAX_STARTS:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_run_requests, args=(theirs,), daemon=True)
        try:
            process.start()
        except (OSError, EOFError) as error:  # the worker or the fork server was killed
            failures.append(error)
            ours.close()
        else:
            return ours, process
        finally:
            theirs.close()  # otherwise the pipe stays open after the process exits
    raise RunError(f"cannot start a worker process: {failures[-1]}") from failures[-1]


def _run_requests(connection: Connection) -> None:
    """Run the requested scenarios until the connection is closed; the main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles Ctrl-C
    faulthandler.enable()
    gc.freeze()  # modules imported by the fork server are not garbage
    requests: SimpleQueue[Request] = SimpleQueue()
    Thread(target=_receive_requests, args=(connection, requests), daemon=True).start()
    with suppress(OSError):
        while True:
            raw, folder = requests.get()
            connection.send(run_one(raw, Path(folder), connection.send))
            gc.collect()  # a simulated world contains many reference cycles


def _receive_requests(connection: Connection, requests: SimpleQueue[Request]) -> None:
    """Queue requests; end this process immediately when the process that started it has ended."""
    with suppress(EOFError, OSError):
        while True:
            requests.put(connection.recv())
    os._exit(0)


def _describe_exit(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "the worker process was killed; if the machine ran out of memory, use fewer workers"
    if exit_code < 0:
        return f"the worker process was ended by {signal.Signals(-exit_code).name}"
    return f"the worker process ended with exit code {exit_code}"
