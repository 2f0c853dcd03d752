"""Training on a Ray cluster, or on one that is started on this machine.

The data is put once into Ray's object store. Every worker is an actor that stays; Ray starts one again that
has died, and gives it its jobs again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Annotated, Any, Generic, TypeVar

import torch
from typing_extensions import override

from rdpfl_sim.components.options import Doc, PositiveFraction
from rdpfl_sim.errors import OptionError, RunError
from rdpfl_sim.execution.executor import Executor, executor
from rdpfl_sim.execution.jobs import EvalJob, EvalResult, Job, TrainingData
from rdpfl_sim.execution.num_workers import Workers
from rdpfl_sim.execution.worker import Worker, WorkerPayload
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import TrainingResult
from rdpfl_sim.rounding import round_down
from rdpfl_sim.system.ray_session import NOT_INSTALLED, NoClusterError, RaySession, is_installed

MAX_RETRIES = 3
"""How often a job whose worker dies is tried again."""

T = TypeVar("T")


class RemoteJob(Generic[T]):
    """Something that an actor was asked to do."""

    def __init__(self, reference: Any) -> None:
        self.reference = reference

    def result(self) -> T:
        """The outcome; Ray sees to it that there is one."""
        import ray
        from ray.exceptions import RayError

        try:
            outcome: T = ray.get(self.reference)
        except RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise RunError(f"Ray could not train: {type(error).__name__}: {reason}") from error
        return outcome


@executor(name="ray")
class RayActors(Executor):
    """Workers of a Ray cluster, each with one client's job at a time: for large models on many machines."""

    def __init__(
        self,
        model: FlatModel,
        training_data: TrainingData,
        *,
        workers: Workers = None,
        address: Annotated[str | None, Doc("of a cluster; by default one is started on this machine")] = None,
        gpus_per_worker: Annotated[
            PositiveFraction, Doc("share of a GPU that a worker takes, where workers train on GPUs")
        ] = 1.0,
    ) -> None:
        if not is_installed():
            raise OptionError("", NOT_INSTALLED)
        super().__init__(model, training_data)
        self.num_workers = workers
        self.gpus_per_worker = gpus_per_worker
        self.session = RaySession(workers, address)
        self._actors: Iterator[Any] | None = None
        self._cargo: Any = None
        self._device_kind: str | None = None

    @property
    @override
    def device_kind(self) -> str:
        """The kind of device that the workers have."""
        if self._device_kind is None:
            self._device_kind = str(self._ask("device_kind").result())
        return self._device_kind

    def start(self, job: Job) -> RemoteJob[TrainingResult]:
        """Hand it to the next worker in turn."""
        return self._ask("train", job)

    def evaluate_many(self, eval_jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Each exam by one of the workers."""
        pending: list[RemoteJob[EvalResult]] = [self._ask("evaluate", eval_job) for eval_job in eval_jobs]
        return [job.result() for job in pending]

    def _ask(self, task: str, *subject: Job | EvalJob) -> RemoteJob[Any]:
        if self._actors is None:
            self._hire()
        assert self._actors is not None
        return RemoteJob(next(self._actors).do.remote([self._cargo], task, *subject))

    def _hire(self) -> None:
        import ray

        try:
            self.session.connect()
        except NoClusterError as error:
            raise RunError(str(error)) from error
        payload, sets = WorkerPayload.packed(self.model, self.training_data)
        # As arrays, which all workers of a machine read where they are.
        self._cargo = ray.put((payload, [tensor.numpy() for tensor in sets]))
        device, num_workers = self._places(ray.cluster_resources())  # type: ignore[no-untyped-call]
        num_gpus = self.gpus_per_worker if device.type == "cuda" else 0
        remote = ray.remote(num_cpus=1, num_gpus=num_gpus, max_restarts=-1, max_task_retries=MAX_RETRIES)
        actor = remote(Actor)
        self._actors = cycle([actor.remote(device) for _ in range(num_workers)])

    def _places(self, resources: Mapping[str, float]) -> tuple[torch.device, int]:
        """The device of every worker, and the number of workers.

        All have the same kind of device, since another one may give other last bits.
        """
        num_cpus = int(resources["CPU"])
        if self.num_workers is not None and self.num_workers > num_cpus:
            raise RunError(
                f"execution.executor.workers: the Ray cluster has {num_cpus} processors, one for each worker "
                f"(given: {self.num_workers})"
            )
        per_gpu = round_down(1 / self.gpus_per_worker)
        room = min(num_cpus, int(resources.get("GPU", 0)) * per_gpu)
        if self.training_data.device == "cpu" or (self.training_data.device == "auto" and room == 0):
            return torch.device("cpu"), self.num_workers or num_cpus
        if room == 0:
            raise RunError("execution.device: no machine of the Ray cluster has a GPU; allowed: auto, cpu")
        if self.num_workers is not None and self.num_workers > room:
            raise RunError(
                f"execution.executor.workers: the GPUs of the Ray cluster have room for {room} workers with "
                f"gpus_per_worker = {self.gpus_per_worker:g} (given: {self.num_workers})"
            )
        return torch.device("cuda", 0), self.num_workers or room

    def close(self) -> None:
        """Let the workers go, and the cluster if it was started here."""
        self._actors = self._cargo = self._device_kind = None
        self.session.close()


class Actor:
    """A worker that Ray starts, and starts again; it unpacks its luggage when it has something to do."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        """Ray shows a worker only the GPU that it has been given."""
        self.worker: Worker | None = None

    def do(self, cargo: list[Any], task: str, *subject: Job | EvalJob) -> Any:
        """Do a job, test a model, or say what kind of device this is."""
        import ray

        if self.worker is None:
            payload, sets = ray.get(cargo[0])
            self.worker = Worker(payload, [torch.from_numpy(array) for array in sets], self.device)
        return getattr(self.worker, task)(*subject)
