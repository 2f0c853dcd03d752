"""Run a sweep on an existing Ray cluster, or on a new one on this machine.

A task runs one scenario in a temporary folder on its machine and sends the folder back, so no shared file
system is needed. Ray reuses its worker processes: each loads libraries and data once.
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
from typing import TYPE_CHECKING

from rdpfl_sim.errors import Problem, RunError, ScenarioError
from rdpfl_sim.execution.ray import NOT_INSTALLED, NoClusterError, RaySession, is_installed
from rdpfl_sim.simulation.experiment import wants_gpu
from rdpfl_sim.simulation.signals import on_interrupt
from rdpfl_sim.sweeps.runner import SweepListener, locked_folder, run_one, staging_folder

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.util.queue import Queue

    from rdpfl_sim.sweeps.plan import PlannedRun
    from rdpfl_sim.toml import TomlTable

MAX_IN_FLIGHT = 1000
"""Maximum number of tasks submitted at a time; a longer queue slows Ray down."""

POLL_INTERVAL_S = 0.5
CANCEL_TIMEOUT_S = 5.0
"""Time for cancelled tasks to remove their files."""


class RayRunner:
    """Runs a sweep on the cluster at `address` or a new local one, at most `num_workers` runs at a time.

    A run that can use a GPU reserves the fraction `gpus_per_run` of one, if the cluster has GPUs.
    """

    def __init__(self, num_workers: int | None, address: str | None, gpus_per_run: float = 1.0) -> None:
        self.num_workers = num_workers
        self.gpus_per_run = gpus_per_run
        self.address = address
        self.session = RaySession(num_workers, address)

    def prepare(self) -> None:
        """Raise a `ScenarioError` if Ray is not installed."""
        if not is_installed():
            raise ScenarioError([Problem("`engine`", NOT_INSTALLED, "ray")])

    def connect(self) -> None:
        """Connect to the cluster or start one, unless this process is already connected."""
        try:
            self.session.connect()
        except NoClusterError as error:
            argument = "`engine`" if self.address is None else "`address`"
            raise ScenarioError([Problem(argument, str(error), self.address or "ray")]) from error

    def close(self) -> None:
        """Disconnect, and stop a cluster that was started here."""
        self.session.close()

    def run(self, runs: Sequence[PlannedRun], output: Path, listener: SweepListener) -> None:
        """Execute all runs, each as a Ray task."""
        import ray

        self.connect()
        has_gpus = ray.cluster_resources().get("GPU", 0) >= 1  # type: ignore[no-untyped-call]
        gpu_shares = GpuShares(runs, self.gpus_per_run if has_gpus else 0.0)
        limit = MAX_IN_FLIGHT if self.address is None or self.num_workers is None else self.num_workers
        pending, interrupted = deque(runs), Event()
        with staging_folder(output) as staging, on_interrupt(interrupted.set):
            tasks = RayTasks(listener, gpu_shares)
            try:
                while pending or tasks.running:
                    while pending and len(tasks.running) < limit:
                        tasks.start(pending.popleft())
                    ended, _ = ray.wait([*tasks.running], timeout=POLL_INTERVAL_S)
                    if interrupted.is_set():
                        raise KeyboardInterrupt
                    tasks.forward_progress()
                    for task in ended:
                        run = tasks.running.pop(task)
                        error = _fetch_files(task, staging.path_for(run))
                        listener.ended(run, staging.finish(run, error))
            finally:
                tasks.cancel()


class GpuShares:
    """The share of a GPU per run; raises a `ScenarioError` if a run needs a GPU that is not available."""

    def __init__(self, runs: Iterable[PlannedRun], share: float) -> None:
        self.share = share
        """0 in a cluster without GPUs."""
        self._uses_gpu: dict[str, bool] = {}
        """Keyed by the relevant sections; cached because reading data sets is slow."""
        for device in {run.scenario.execution.device for run in runs}:
            if device.startswith("cuda:"):
                text = "Ray chooses the GPU of each run; allowed: auto, cpu, cuda"
                raise ScenarioError([Problem("execution.device", text, device)])
            if device == "cuda" and share == 0:
                text = "no machine in the Ray cluster has a GPU; allowed: auto, cpu"
                raise ScenarioError([Problem("execution.device", text, device)])

    def share_of(self, run: PlannedRun) -> float:
        """Return the share for a run."""
        if self.share == 0:
            return 0.0
        sections = run.scenario.to_dict()
        key = repr([sections[name] for name in ("data", "model", "execution")])
        if key not in self._uses_gpu:
            self._uses_gpu[key] = wants_gpu(run.scenario)
        return self.share if self._uses_gpu[key] else 0.0


class RayTasks:
    """The runs submitted to Ray, and the queue for their progress reports."""

    def __init__(self, listener: SweepListener, gpu_shares: GpuShares) -> None:
        import ray
        from ray.util.queue import Queue

        self.listener = listener
        self.gpu_shares = gpu_shares
        self.running: dict[ObjectRef[tuple[str | None, bytes]], PlannedRun] = {}
        self.reports = Queue(actor_options={"num_cpus": 0, "max_restarts": -1})
        self.remote = ray.remote(num_cpus=1, max_retries=1)(run_and_pack)  # retried if its worker dies

    def start(self, run: PlannedRun) -> None:
        """Submit a run to Ray."""
        task = self.remote.options(num_gpus=self.gpu_shares.share_of(run)).remote(
            run.scenario.to_dict(), run.key, self.reports
        )
        self.running[task] = run
        self.listener.started(run)

    def forward_progress(self) -> None:
        """Pass the progress reports of the tasks on to the listener."""
        from ray.exceptions import RayError

        by_key = {run.key: run for run in self.running.values()}
        with suppress(RayError):  # the queue was killed: Ray restarts it, and later reports arrive
            for key, fraction in self.reports.get_nowait_batch(self.reports.qsize()):
                if key in by_key:
                    self.listener.advanced(by_key[key], fraction)

    def cancel(self) -> None:
        """Cancel the running tasks, which remove their files; kill those that do not end in time."""
        import ray

        for task in reversed(self.running):  # queued tasks first
            ray.cancel(task)
        if self.running:
            _, remaining = ray.wait([*self.running], num_returns=len(self.running), timeout=CANCEL_TIMEOUT_S)
            for task in remaining:
                ray.cancel(task, force=True)
        self.reports.shutdown(force=True)


def run_and_pack(raw: TomlTable, key: str, reports: Queue) -> tuple[str | None, bytes]:
    """Run a scenario in a Ray task; return its error message, if any, and its files as a ZIP archive."""
    from ray.exceptions import RayError

    def report(fraction: float) -> None:
        with suppress(RayError):  # the process of the queue was killed
            reports.put_nowait((key, fraction))

    with locked_folder(_temporary_folder()) as parent:
        folder = parent / key
        error = run_one(raw, folder, report)
        if error is not None:
            error = f"{error} (on {socket.gethostname()})"
        return error, _pack(folder)


def _temporary_folder() -> Path:
    """Return this user's folder for tasks on this machine; later tasks remove files of killed tasks."""
    path = Path(gettempdir(), f"rdpfl-sim-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise RunError(f"{path} belongs to a different user; set TMPDIR to a folder that you own")
    return path


def _pack(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return buffer.getvalue()


def _fetch_files(task: ObjectRef[tuple[str | None, bytes]], folder: Path) -> str | None:
    """Write the files of an ended task into a folder; return its error message if it failed."""
    import ray
    from ray.exceptions import RayError

    try:
        error, files = ray.get(task)
    except RayError as lost:  # the worker or its machine has died, or lacks resources
        return f"{type(lost).__name__}: {str(lost).strip().splitlines()[-1]}"
    with zipfile.ZipFile(io.BytesIO(files)) as archive:
        archive.extractall(folder)
    return error
