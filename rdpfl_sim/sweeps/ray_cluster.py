"""The engine for many machines: a Ray cluster, or one that is started on this machine.

A task runs one scenario in a temporary folder of the machine where it happens to be, and sends the folder
back, so that no file system needs to be shared. Ray keeps its worker processes: libraries and data are loaded
once in each.
"""

from __future__ import annotations

import io
import socket
import zipfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING, Any

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.interruption import on_interrupt
from rdpfl_sim.ray_session import MISSING, NoClusterError, RaySession, is_installed
from rdpfl_sim.sweeps.attempt import attempt
from rdpfl_sim.sweeps.engine import Watcher
from rdpfl_sim.sweeps.scratch import scratch_in

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import Run

MAX_IN_FLIGHT = 1000
"""Ray queues what its machines cannot run yet; a longer queue would only slow it down."""

LISTEN_EVERY_S = 0.5
PATIENCE_S = 5.0
"""How long cancelled tasks may take to tidy up."""


class RayCluster:
    """The cluster at an address, or a new one on this machine; so many runs at a time, or all that fit."""

    def __init__(self, num_workers: int | None, address: str | None) -> None:
        self.num_workers = num_workers
        self.address = address
        self.session = RaySession(num_workers, address)

    def prepare(self) -> None:
        """See that Ray is installed."""
        if not is_installed():
            raise ScenarioError([Problem("--engine", MISSING, "ray")])

    def connect(self) -> None:
        """Connect, or start a cluster, unless this process is connected already."""
        try:
            self.session.connect()
        except NoClusterError as error:
            option = "--engine" if self.address is None else "--address"
            raise ScenarioError([Problem(option, str(error), self.address or "ray")]) from error

    def close(self) -> None:
        """Disconnect, and stop a cluster that was started here."""
        self.session.close()

    def run(self, runs: Sequence[Run], output: Path, watcher: Watcher) -> None:
        """Run all, each as a task."""
        import ray

        self.connect()

        limit = MAX_IN_FLIGHT if self.address is None or self.num_workers is None else self.num_workers
        waiting, interrupted = deque(runs), Event()
        with scratch_in(output) as scratch, on_interrupt(interrupted.set):
            tasks = Tasks(watcher)
            try:
                while waiting or tasks.running:
                    while waiting and len(tasks.running) < limit:
                        tasks.start(waiting.popleft())
                    ended, _ = ray.wait([*tasks.running], timeout=LISTEN_EVERY_S)
                    if interrupted.is_set():
                        raise KeyboardInterrupt
                    tasks.listen()
                    for task in ended:
                        run = tasks.running.pop(task)
                        error = _received(task, scratch.place_of(run))
                        watcher.ended(run, scratch.settle(run, error))
            finally:
                tasks.cancel()


class Tasks:
    """The runs that Ray has been given, and the queue on which they tell how far they are."""

    def __init__(self, watcher: Watcher) -> None:
        import ray
        from ray.util.queue import Queue

        self.watcher = watcher
        self.running: dict[Any, Run] = {}
        self.reports = Queue(actor_options={"num_cpus": 0})
        self.remote = ray.remote(num_cpus=1, max_retries=1)(run_and_pack)  # again if its worker dies

    def start(self, run: Run) -> None:
        """Hand a run to Ray."""
        task = self.remote.remote(run.scenario.to_dict(), run.key, self.reports)
        self.running[task] = run
        self.watcher.started(run)

    def listen(self) -> None:
        """Tell the watcher how far the runs are."""
        by_key = {run.key: run for run in self.running.values()}
        for key, fraction in self.reports.get_nowait_batch(self.reports.qsize()):
            if key in by_key:
                self.watcher.advanced(by_key[key], fraction)

    def cancel(self) -> None:
        """Stop what still runs: politely, so that it tidies up, then by force."""
        import ray

        for task in reversed(self.running):  # first those that wait for a place to run
            ray.cancel(task)
        if self.running:
            _, stubborn = ray.wait([*self.running], num_returns=len(self.running), timeout=PATIENCE_S)
            for task in stubborn:
                ray.cancel(task, force=True)
        self.reports.shutdown(force=True)


def run_and_pack(raw: dict[str, Any], key: str, reports: Any) -> tuple[str | None, bytes]:
    """What a task does: the error of a run, if it has failed, and all its files."""
    with TemporaryDirectory(prefix="rdpfl-sim-") as scratch:
        place = Path(scratch, key)
        error = attempt(raw, place, lambda fraction: reports.put_nowait((key, fraction)))
        if error is not None:
            error = f"{error} (on {socket.gethostname()})"
        return error, _packed(place)


def _packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return buffer.getvalue()


def _received(task: Any, place: Path) -> str | None:
    """The error of a task, if it has failed; its files are put in their place."""
    import ray
    from ray.exceptions import RayError

    try:
        error, files = ray.get(task)
    except RayError as lost:  # the worker or its machine has died, or lacks what the run needs
        return f"{type(lost).__name__}: {str(lost).strip().splitlines()[-1]}"
    with zipfile.ZipFile(io.BytesIO(files)) as archive:
        archive.extractall(place)
    return None if error is None else str(error)
