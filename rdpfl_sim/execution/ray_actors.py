"""Training on an existing Ray cluster or on a new one on this machine. Updates are computed in this process.

The data is put into Ray's object store once. Every worker is an actor that runs until the executor is closed.
Ray restarts a worker that has died and resubmits its jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Annotated, Any, Generic, TypeVar

import torch
from typing_extensions import override

from rdpfl_sim.components.options import Doc, PositiveFraction
from rdpfl_sim.errors import OptionError, RunError
from rdpfl_sim.execution.executor import Executor, PendingJob, RoundComputation, executor
from rdpfl_sim.execution.num_workers import Workers
from rdpfl_sim.execution.training_data import EvalJob, EvalResult, TrainingJob
from rdpfl_sim.execution.worker import Worker, WorkerPayload
from rdpfl_sim.methods.base import Trained
from rdpfl_sim.rounding import round_down
from rdpfl_sim.system.ray_session import NOT_INSTALLED, NoClusterError, RaySession, is_installed
from rdpfl_sim.world.jobs import RoundJob

MAX_RETRIES = 3
"""Maximum number of retries of a job after its worker dies."""

T = TypeVar("T")


class RemoteCall(Generic[T]):
    """A pending call to a Ray actor."""

    def __init__(self, reference: Any) -> None:
        self.reference = reference

    def result(self) -> T:
        """Wait for the result and return it. Ray repeats the job if its worker dies."""
        import ray
        from ray.exceptions import RayError

        try:
            result: T = ray.get(self.reference)
        except RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise RunError(f"training on Ray failed: {type(error).__name__}: {reason}") from error
        return result


class RayJob(PendingJob):
    """A job whose local training runs on a worker."""

    training: RemoteCall[Trained] | None = None


@executor(name="ray")
class RayActors(Executor):
    """Workers of a Ray cluster, for large models on many machines. Each worker runs one job at a time."""

    def __init__(
        self,
        computation: RoundComputation,
        *,
        workers: Workers = None,
        address: Annotated[
            str | None, Doc("address of an existing cluster; default: start a local one")
        ] = None,
        gpus_per_worker: Annotated[
            PositiveFraction, Doc("fraction of a GPU per worker, if workers train on GPUs")
        ] = 1.0,
    ) -> None:
        if not is_installed():
            raise OptionError("", NOT_INSTALLED)
        super().__init__(computation)
        self.num_workers = workers
        self.gpus_per_worker = gpus_per_worker
        self.session = RaySession(workers, address)
        self._actors: Iterator[Any] | None = None
        self._payload_ref: Any = None
        self._device_kind: str | None = None

    @property
    @override
    def device_kind(self) -> str:
        """The GPU model of the workers, or `cpu`."""
        if self._device_kind is None:
            self._device_kind = str(self._call("device_kind").result())
        return self._device_kind

    @override
    def submit(self, job: RoundJob) -> RayJob:
        """Compute the update now, and submit the local training to the next worker (round-robin)."""
        submitted = RayJob(job, self)
        if job.trains:
            submitted.training = self._call("train", self.computation.training_job(submitted))
        return submitted

    @override
    def compute_result(self, job: PendingJob) -> None:
        """Wait for the worker to finish the training."""
        assert isinstance(job, RayJob)
        assert job.training is not None
        self.computation.finish(job, job.training.result())

    @override
    def evaluate_many(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Distribute the jobs over the workers and return their results."""
        calls: list[RemoteCall[EvalResult]] = [self._call("evaluate", job) for job in jobs]
        return [call.result() for call in calls]

    def _call(self, method: str, *jobs: TrainingJob | EvalJob) -> RemoteCall[Any]:
        if self._actors is None:
            self._start_actors()
        assert self._actors is not None
        return RemoteCall(next(self._actors).call.remote([self._payload_ref], method, *jobs))

    def _start_actors(self) -> None:
        import ray

        try:
            self.session.connect()
        except NoClusterError as error:
            raise RunError(str(error)) from error
        payload, tensors = WorkerPayload.pack(self.model, self.training_data)
        # All workers on a machine share arrays in the object store without copies.
        self._payload_ref = ray.put((payload, [tensor.numpy() for tensor in tensors]))
        device, num_workers = self._worker_resources(ray.cluster_resources())  # type: ignore[no-untyped-call]
        num_gpus = self.gpus_per_worker if device.type == "cuda" else 0
        remote = ray.remote(num_cpus=1, num_gpus=num_gpus, max_restarts=-1, max_task_retries=MAX_RETRIES)
        actor = remote(Actor)
        self._actors = cycle([actor.remote(device) for _ in range(num_workers)])

    def _worker_resources(self, resources: Mapping[str, float]) -> tuple[torch.device, int]:
        """Return the device of every worker, and the number of workers.

        All workers have the same kind of device, because the last bits of results depend on it.
        """
        num_cpus = int(resources["CPU"])
        if self.num_workers is not None and self.num_workers > num_cpus:
            raise RunError(
                f"execution.executor.workers: each worker needs one CPU, and the Ray cluster has {num_cpus} "
                f"(given: {self.num_workers})"
            )
        per_gpu = round_down(1 / self.gpus_per_worker)
        max_gpu_workers = min(num_cpus, int(resources.get("GPU", 0)) * per_gpu)
        requested = self.training_data.device
        if requested == "cpu" or (requested == "auto" and max_gpu_workers == 0):
            return torch.device("cpu"), self.num_workers or num_cpus
        if max_gpu_workers == 0:
            raise RunError("execution.device: no machine in the Ray cluster has a GPU; allowed: auto, cpu")
        if self.num_workers is not None and self.num_workers > max_gpu_workers:
            raise RunError(
                f"execution.executor.workers: the GPUs of the Ray cluster support {max_gpu_workers} workers "
                f"with gpus_per_worker = {self.gpus_per_worker:g} (given: {self.num_workers})"
            )
        return torch.device("cuda", 0), self.num_workers or max_gpu_workers

    @override
    def close(self) -> None:
        """Stop the workers, and the cluster if this process started it."""
        self._actors = self._payload_ref = self._device_kind = None
        self.session.close()


class Actor:
    """A Ray actor that wraps a `Worker`.

    The payload is loaded by the first call, and by the first call after a restart.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        """Always cuda:0 or the CPU: Ray makes only the assigned GPU visible to a worker."""
        self.worker: Worker | None = None

    def call(self, payload_ref: list[Any], method: str, *jobs: TrainingJob | EvalJob) -> Any:
        """Call a method of the worker, which is created on the first call."""
        import ray

        if self.worker is None:  # the list keeps Ray from resolving the reference on every call
            payload, arrays = ray.get(payload_ref[0])
            self.worker = Worker(payload, [torch.from_numpy(array) for array in arrays], self.device)
        return getattr(self.worker, method)(*jobs)
