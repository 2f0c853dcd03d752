"""The engine that needs nothing: worker processes of this machine.

A worker runs one scenario after the other, so that libraries and data are loaded once. One that dies takes
only its run with it, and another takes its place. Workers are forked by a server that has imported torch.
This module and what it imports are light, so that the server can do so while this process does the same.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdpfl_sim.interruption import on_interrupt
from rdpfl_sim.sweeps.attempt import attempt
from rdpfl_sim.sweeps.engine import Watcher
from rdpfl_sim.sweeps.scratch import Scratch, scratch_in

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import Run

CONTEXT = multiprocessing.get_context("forkserver")


class Processes:
    """So many worker processes."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers

    def prepare(self) -> None:
        """Start the fork server; it is ready when somebody needs it."""
        CONTEXT.set_forkserver_preload(["rdpfl_sim.simulation"])
        before = signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT}
        )  # inherited: Ctrl-C is for us alone
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """Nothing: the fork server ends with this process."""

    def run(self, runs: Sequence[Run], output: Path, watcher: Watcher) -> None:
        """Run all, each in one of the workers."""
        self.prepare()
        interrupted, interrupt = CONTEXT.Pipe(duplex=False)
        waiting, workers = deque(runs), list[Worker]()
        with scratch_in(output) as scratch, on_interrupt(lambda: interrupt.send(None)):
            try:
                while waiting or workers:
                    while waiting and len(workers) < self.num_workers:
                        workers.append(Worker(scratch, watcher))
                        workers[-1].begin(waiting.popleft())
                    wait([interrupted, *(worker.connection for worker in workers)])
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

    def __init__(self, scratch: Scratch, watcher: Watcher) -> None:
        self.scratch = scratch
        self.watcher = watcher
        self.run: Run | None = None
        self.is_alive = True
        self.connection, theirs = CONTEXT.Pipe()
        self.process: Any = CONTEXT.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # so that our end tells when the process has ended, however that happens

    def begin(self, run: Run) -> None:
        """Give it something to do."""
        self.run = run
        self.watcher.started(run)
        with suppress(BrokenPipeError):  # it has died: `has_ended_its_run` will see that
            self.connection.send((run.scenario.to_dict(), str(self.scratch.place_of(run))))

    def has_ended_its_run(self) -> bool:
        """Hear what it has to say: how far it is, or that its run has ended."""
        assert self.run is not None
        try:
            while self.connection.poll():
                report = self.connection.recv()
                if isinstance(report, float):
                    self.watcher.advanced(self.run, report)
                else:
                    return self._end(report)
        except (EOFError, ConnectionResetError):
            self.is_alive = False
            self.process.join()
            return self._end(_last_words(self.process.exitcode))
        return False

    def dismiss(self) -> None:
        """Let the process end."""
        self.connection.close()
        self.process.join()

    def _end(self, error: str | None) -> bool:
        assert self.run is not None
        run, self.run = self.run, None
        self.watcher.ended(run, self.scratch.settle(run, error))
        return True


def _work(connection: Connection) -> None:
    """The life of a worker process: it ends when nobody is at the other end of the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns this one
    faulthandler.enable()
    gc.freeze()  # all that the fork server has imported: there is no garbage in it to look for
    with suppress(EOFError, ConnectionError):
        while True:
            raw, place = connection.recv()
            connection.send(attempt(raw, Path(place), connection.send))
            gc.collect()  # a simulated world is full of cycles


def _last_words(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "its process was killed, by the system if memory is short: fewer workers need less"
    if exit_code < 0:
        return f"its process was ended by {signal.Signals(-exit_code).name}"
    return f"its process ended with exit code {exit_code}"
