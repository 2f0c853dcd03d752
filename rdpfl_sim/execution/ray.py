"""Training in separate processes. All clients of a process share one copy of the data set."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from itertools import cycle
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from rdpfl_sim.components.options import Doc, PositiveFraction, round_down
from rdpfl_sim.errors import OptionError, RunError
from rdpfl_sim.execution import arithmetic, devices
from rdpfl_sim.execution.arithmetic import Arithmetic
from rdpfl_sim.execution.devices import Workers, keep_freed_memory, make_torch_deterministic
from rdpfl_sim.execution.executor import (
    EvalJob,
    EvalResult,
    Executor,
    PendingJob,
    RoundComputation,
    TrainingConfig,
    TrainingData,
    TrainingJob,
    executor,
)
from rdpfl_sim.learning.datasets.dataset import Augmentation, Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.methods.base import Trained, TrainingTask
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.jobs import RoundJob


@dataclass(frozen=True)
class WorkerPayload:
    """The input of a worker, except the tensors of the data set, which are sent separately."""

    model: FlatModel
    shards: list[np.ndarray]
    poisoned: list[int]
    validation: list[np.ndarray]
    personal_tests: list[np.ndarray]
    global_test: np.ndarray
    augment: Augmentation | None
    settings: TrainingConfig
    streams: Streams
    num_threads: int
    arithmetic: Arithmetic

    @classmethod
    def pack(cls, model: FlatModel, training_data: TrainingData) -> tuple[WorkerPayload, list[Tensor]]:
        """Return the payload and five tensors.

        These are the training inputs, labels and poisoned labels, and the test inputs and labels.
        """
        train, test = training_data.shards[0], training_data.global_test
        false_y = next((shard.y for shard in training_data.poisoned.values()), train.y)
        payload = cls(
            model,
            [shard.indices.numpy() for shard in training_data.shards],
            list(training_data.poisoned),
            [shard.indices.numpy() for shard in training_data.validation],
            [shard.indices.numpy() for shard in training_data.personal_tests],
            test.indices.numpy(),
            train.augment,
            training_data.settings,
            training_data.streams,
            torch.get_num_threads(),
            arithmetic.in_use(),
        )
        return payload, [train.x, train.y, false_y, test.x, test.y]

    def unpack(self, tensors: Sequence[Tensor]) -> TrainingData:
        """Return the training data on the same device as the tensors."""
        x, y, false_y, x_test, y_test = tensors

        def shard(x: Tensor, y: Tensor, indices: np.ndarray, augment: Augmentation | None = None) -> Shard:
            return Shard(x, y, torch.from_numpy(indices).to(x.device), augment)

        return TrainingData(
            [shard(x, y, indices, self.augment) for indices in self.shards],
            {client: shard(x, false_y, self.shards[client], self.augment) for client in self.poisoned},
            [shard(x_test, y_test, indices) for indices in self.personal_tests],
            shard(x_test, y_test, self.global_test),
            self.settings,
            self.streams,
            validation=[shard(x, y, indices) for indices in self.validation],
        )


class Worker:
    """A worker that runs jobs in a separate process, on its own device. Inputs and results are on the CPU."""

    def __init__(
        self, payload: WorkerPayload, tensors: Sequence[Tensor], device: torch.device = devices.CPU
    ) -> None:
        if device.type == "cuda" and not torch.cuda.is_available():
            raise RunError("torch cannot use the GPU of a worker; use execution.device = 'cpu'")
        arithmetic.use(payload.arithmetic)
        keep_freed_memory()
        devices.prepare(device)
        make_torch_deterministic(payload.num_threads, device)
        self.device = device
        self.model = payload.model.on(device)
        self.training_data = payload.unpack([tensor.to(device) for tensor in tensors])

    def train(self, job: TrainingJob) -> Trained:
        """Run a training job."""
        velocity = None if job.velocity is None else job.velocity.to(self.device)
        job = job._replace(task=_to_device(job.task, self.device), velocity=velocity)
        return _to_device(self.training_data.train(self.model, job), devices.CPU)

    def evaluate(self, job: EvalJob) -> EvalResult:
        """Run an evaluation job."""
        return self.training_data.evaluate(self.model, _to_device(job, self.device))

    def device_kind(self) -> str:
        """Return the GPU model of this worker, or `cpu`."""
        return devices.kind(self.device)


V = TypeVar("V", TrainingTask, Trained, EvalJob)


def _to_device(value: V, device: torch.device) -> V:
    """Return a copy of the value with its tensors on a device."""
    entries = {field.name: getattr(value, field.name) for field in fields(value)}
    on_device: dict[str, Any] = {key: x.to(device) for key, x in entries.items() if isinstance(x, Tensor)}
    return replace(value, **on_device)


CONNECT_TIMEOUT_S = 5.0
NOT_INSTALLED = "needs Ray, which is not installed: pip install 'rdpfl-sim[ray]'"


class NoClusterError(Exception):
    """No cluster is available; the message contains the reason."""


def is_installed() -> bool:
    """Return whether Ray can be imported."""
    return find_spec("ray") is not None


class RaySession:
    """A connection to the cluster at `address`, or to a new local one with `num_cpus` processors."""

    def __init__(self, num_cpus: int | None, address: str | None) -> None:
        self.num_cpus = num_cpus
        self.address = address
        self._opened_here = False

    def connect(self) -> None:
        """Connect or start a cluster, unless this process is already connected."""
        import ray

        if ray.is_initialized():
            return
        try:
            self._connect()
        except (OSError, ImportError, RuntimeError, ValueError) as error:
            reason = str(error).partition(". ")[0]
            raise NoClusterError(f"cannot connect to a Ray cluster: {reason}") from error
        self._opened_here = True

    def _connect(self) -> None:
        import ray

        import rdpfl_sim

        start = partial(ray.init, log_to_driver=False, logging_level=logging.ERROR)
        if self.address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            start("local", num_cpus=self.num_cpus, include_dashboard=False)
        else:
            _check_reachable(self.address)
            # Send this version of the package to the cluster: results may depend on the version.
            start(self.address, runtime_env={"py_modules": [rdpfl_sim]})

    def close(self) -> None:
        """Disconnect, and stop the cluster if it was started here."""
        if self._opened_here:
            import ray

            ray.shutdown()
            self._opened_here = False


def _check_reachable(address: str) -> None:
    """Raise an `OSError` immediately if host:port does not respond; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()


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


@executor(name="ray", is_remote=True)
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
