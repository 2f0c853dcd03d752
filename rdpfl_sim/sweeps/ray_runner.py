"""The engine for many machines: a Ray cluster, or one that is started on this machine.

A task runs one scenario in a temporary folder of the machine where it happens to be, and sends the folder
back, so that no file system needs to be shared. Ray keeps its worker processes: libraries and data are loaded
once in each.
"""

from __future__ import annotations

import io
import os
import socket
import zipfile
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from threading import Event
from typing import TYPE_CHECKING, Any

from rdpfl_sim.errors import Problem, RunError, ScenarioError
from rdpfl_sim.simulation.experiment import wants_gpu
from rdpfl_sim.simulation.signals import on_interrupt
from rdpfl_sim.sweeps.run_one import attempt
from rdpfl_sim.sweeps.runner import SweepListener
from rdpfl_sim.sweeps.staging import own_folder, scratch_in
from rdpfl_sim.system.ray_session import NOT_INSTALLED, NoClusterError, RaySession, is_installed

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun

MAX_IN_FLIGHT = 1000
"""Ray queues what its machines cannot run yet; a longer queue would only slow it down."""

LISTEN_EVERY_S = 0.5
PATIENCE_S = 5.0
"""How long cancelled tasks may take to tidy up."""


class RayRunner:
    """The cluster at an address, or a new one on this machine; so many runs at a time, or all that fit.

    A run that can use a GPU takes `gpus_per_run` of one, if the cluster has any.
    """

    def __init__(self, num_workers: int | None, address: str | None, gpus_per_run: float = 1.0) -> None:
        self.num_workers = num_workers
        self.gpus_per_run = gpus_per_run
        self.address = address
        self.session = RaySession(num_workers, address)

    def prepare(self) -> None:
        """See that Ray is installed."""
        if not is_installed():
            raise ScenarioError([Problem("--engine", NOT_INSTALLED, "ray")])

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

    def run(self, runs: Sequence[PlannedRun], output: Path, listener: SweepListener) -> None:
        """Run all, each as a task."""
        import ray

        self.connect()
        has_gpus = ray.cluster_resources().get("GPU", 0) >= 1  # type: ignore[no-untyped-call]
        num_gpus = Gpus(runs, self.gpus_per_run if has_gpus else 0.0)
        limit = MAX_IN_FLIGHT if self.address is None or self.num_workers is None else self.num_workers
        waiting, interrupted = deque(runs), Event()
        with scratch_in(output) as scratch, on_interrupt(interrupted.set):
            tasks = Tasks(listener, num_gpus)
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
                        listener.ended(run, scratch.settle(run, error))
            finally:
                tasks.cancel()


class Gpus:
    """The share of a GPU that each run takes; a `ScenarioError` if a run names one that it cannot have."""

    def __init__(self, runs: Iterable[PlannedRun], share: float) -> None:
        self.share = share
        """0 in a cluster without GPUs."""
        self.known: dict[str, bool] = {}
        """By what decides it, since data sets take time to read: whether a run can use a GPU."""
        for device in {run.scenario.execution.device for run in runs}:
            if device.startswith("cuda:"):
                text = "Ray chooses the GPU of each run; allowed: auto, cpu, cuda"
                raise ScenarioError([Problem("execution.device", text, device)])
            if device == "cuda" and share == 0:
                text = "no machine of the Ray cluster has a GPU; allowed: auto, cpu"
                raise ScenarioError([Problem("execution.device", text, device)])

    def of(self, run: PlannedRun) -> float:
        """The share that a run takes."""
        if self.share == 0:
            return 0.0
        sections = run.scenario.to_dict()
        key = repr([sections[name] for name in ("data", "model", "execution")])
        if key not in self.known:
            self.known[key] = wants_gpu(run.scenario)
        return self.share if self.known[key] else 0.0


class Tasks:
    """The runs that Ray has been given, and the queue on which they tell how far they are."""

    def __init__(self, listener: SweepListener, num_gpus: Gpus) -> None:
        import ray
        from ray.util.queue import Queue

        self.listener = listener
        self.num_gpus = num_gpus
        self.running: dict[Any, PlannedRun] = {}
        self.reports = Queue(actor_options={"num_cpus": 0, "max_restarts": -1})
        self.remote = ray.remote(num_cpus=1, max_retries=1)(run_and_pack)  # again if its worker dies

    def start(self, run: PlannedRun) -> None:
        """Hand a run to Ray."""
        task = self.remote.options(num_gpus=self.num_gpus.of(run)).remote(
            run.scenario.to_dict(), run.key, self.reports
        )
        self.running[task] = run
        self.listener.started(run)

    def listen(self) -> None:
        """Tell the watcher how far the runs are."""
        from ray.exceptions import RayError

        by_key = {run.key: run for run in self.running.values()}
        with suppress(RayError):  # its process was killed: Ray starts it again, and later reports arrive
            for key, fraction in self.reports.get_nowait_batch(self.reports.qsize()):
                if key in by_key:
                    self.listener.advanced(by_key[key], fraction)

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
    from ray.exceptions import RayError

    def report(fraction: float) -> None:
        with suppress(RayError):  # the queue's process was killed
            reports.put_nowait((key, fraction))

    with own_folder(_temporary()) as scratch:
        place = scratch / key
        error = attempt(raw, place, report)
        if error is not None:
            error = f"{error} (on {socket.gethostname()})"
        return error, _packed(place)


def _temporary() -> Path:
    """Where this user's tasks have their folders on this machine; those of killed ones are removed later."""
    path = Path(gettempdir(), f"rdpfl-sim-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise RunError(f"{path} belongs to another user; set TMPDIR to a folder of your own")
    return path


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
