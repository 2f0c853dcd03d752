"""Training in separate processes. All clients of a process share one copy of the data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rdpfl_sim.errors import RunError
from rdpfl_sim.execution import arithmetic, devices
from rdpfl_sim.execution.allocation import keep_freed_memory
from rdpfl_sim.execution.arithmetic import Arithmetic
from rdpfl_sim.execution.determinism import make_torch_deterministic
from rdpfl_sim.execution.training_data import EvalJob, EvalResult, TrainingConfig, TrainingData, TrainingJob
from rdpfl_sim.learning.datasets.dataset import Augmentation, Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.methods.base import Trained, TrainingTask
from rdpfl_sim.randomness import Streams


@dataclass(frozen=True)
class WorkerPayload:
    """The input of a worker, except the tensors of the data set, which are sent separately."""

    model: FlatModel
    shards: list[np.ndarray]
    poisoned: list[int]
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
        job = job._replace(task=_to_device(job.task, self.device))
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
