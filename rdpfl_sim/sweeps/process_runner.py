"""The engine that needs nothing: worker processes of this machine.

A worker runs one scenario after the other, so that libraries and data are loaded once. One that dies takes
only its run with it, and another takes its place. Workers are forked by a server that has imported torch.
This module and what it imports are light, so that the server can do so while this process does the same.

Each worker has a pipe of its own and shares no lock and no queue with the others, so that one that is killed,
even in the middle of a message, cannot block them. A worker whose pipe is closed ends itself: none outlives
the process that started it, however that one ends.
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
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from rdpfl_sim.errors import RunError
from rdpfl_sim.simulation.signals import on_interrupt
from rdpfl_sim.sweeps.run_one import attempt
from rdpfl_sim.sweeps.runner import SweepListener
from rdpfl_sim.sweeps.staging import Scratch, scratch_in

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun

CONTEXT = multiprocessing.get_context("forkserver")

MAX_STARTS = 3
"""How often to try to start a worker, in case that it or the fork server is killed meanwhile."""

PATIENCE_S = 5.0
"""How long a worker that has closed its pipe may take to end."""


class ProcessRunner:
    """So many worker processes."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers

    def prepare(self) -> None:
        """Start the fork server; it is ready when somebody needs it."""
        CONTEXT.set_forkserver_preload(["rdpfl_sim.simulation.simulation"])
        before = signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT}
        )  # inherited: Ctrl-C is for us alone
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """Nothing: the fork server ends with this process."""

    def run(self, runs: Sequence[PlannedRun], output: Path, listener: SweepListener) -> None:
        """Run all, each in one of the workers."""
        self.prepare()
        interrupted, interrupt = CONTEXT.Pipe(duplex=False)
        waiting, workers = deque(runs), list[Worker]()
        with scratch_in(output) as scratch, on_interrupt(lambda: interrupt.send(None)):
            try:
                while waiting or workers:
                    while waiting and len(workers) < self.num_workers:
                        workers.append(Worker(scratch, listener))
                        workers[-1].begin(waiting.popleft())
                    wait([interrupted, *(end for worker in workers for end in worker.ends)])
                    if interrupted.poll():
                        raise KeyboardInterrupt
                    for worker in list(workers):
                        if worker.has_ended_its_run() and waiting and worker.is_alive:
                            worker.begin(waiting.popleft())
                        elif worker.run is None:
                            workers.remove(worker)
                            worker.dismiss()
            finally:
                for worker in workers:
                    worker.process.kill()
                for worker in workers:
                    worker.dismiss()


class Worker:
    """A process, its run, and the connection on which it gets runs and reports."""

    def __init__(self, scratch: Scratch, listener: SweepListener) -> None:
        self.scratch = scratch
        self.listener = listener
        self.run: PlannedRun | None = None
        self.connection, self.process = _started()

    @property
    def ends(self) -> tuple[Connection, int]:
        """What can be waited for: a report, and the end of the process."""
        return self.connection, self.process.sentinel

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return bool(self.process.is_alive())

    def begin(self, run: PlannedRun) -> None:
        """Give it something to do."""
        self.run = run
        self.listener.started(run)
        with suppress(OSError):  # it has died: `has_ended_its_run` will see that
            self.connection.send((run.scenario.to_dict(), str(self.scratch.place_of(run))))

    def has_ended_its_run(self) -> bool:
        """Read its reports: how far it is, or that its run has ended; its process may have ended, too."""
        assert self.run is not None
        is_alive = self.is_alive  # asked first: what it reported before its end is still in the pipe
        try:
            while self.connection.poll():
                report = self.connection.recv()
                if isinstance(report, float):
                    self.listener.advanced(self.run, report)
                else:
                    return self._end(report)
        except (EOFError, OSError):  # it has ended, perhaps in the middle of a report
            is_alive = False
        return not is_alive and self._end(_last_words(self._exit_code()))

    def dismiss(self) -> None:
        """Let the process end: it does when its connection is closed."""
        self.connection.close()
        self._exit_code()

    def _exit_code(self) -> int:
        """The exit code of a process that is about to end; it is killed if it does not."""
        self.process.join(PATIENCE_S)
        if self.is_alive:
            self.process.kill()
            self.process.join()
        code: int = self.process.exitcode
        return code

    def _end(self, error: str | None) -> bool:
        assert self.run is not None
        run, self.run = self.run, None
        self.listener.ended(run, self.scratch.settle(run, error))
        return True


def _started() -> tuple[Connection, Any]:
    """A connection to a new worker, and its process."""
    failures: list[Exception] = []
    while len(failures) < MAX_STARTS:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_work, args=(theirs,), daemon=True)
        try:
            process.start()
        except (OSError, EOFError) as error:  # it, or the fork server, was killed meanwhile
            failures.append(error)
            ours.close()
        else:
            return ours, process
        finally:
            theirs.close()  # so that our end tells when the process has ended, however that happens
    raise RunError(f"no worker process can be started: {failures[-1]}") from failures[-1]


def _work(connection: Connection) -> None:
    """Run what the connection brings, until nothing is at its other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns this one
    faulthandler.enable()
    gc.freeze()  # all that the fork server has imported: there is no garbage in it to look for
    orders: SimpleQueue[tuple[dict[str, Any], str]] = SimpleQueue()
    Thread(target=_listen, args=(connection, orders), daemon=True).start()
    with suppress(OSError):
        while True:
            raw, place = orders.get()
            connection.send(attempt(raw, Path(place), connection.send))
            gc.collect()  # a simulated world is full of cycles


def _listen(connection: Connection, orders: SimpleQueue[tuple[dict[str, Any], str]]) -> None:
    """Pass orders on; end this process, whatever it is doing, when the process that owns it has ended."""
    with suppress(EOFError, OSError):
        while True:
            orders.put(connection.recv())
    os._exit(0)


def _last_words(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "its process was killed, by the system if memory is short: fewer workers need less"
    if exit_code < 0:
        return f"its process was ended by {signal.Signals(-exit_code).name}"
    return f"its process ended with exit code {exit_code}"
