"""Model, data and settings in a form that travels to other processes: a data set once, not once a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rdpfl_sim.errors import RunError
from rdpfl_sim.execution import devices
from rdpfl_sim.execution.allocation import keep_freed_memory
from rdpfl_sim.execution.determinism import set_repeatable
from rdpfl_sim.execution.jobs import EvalJob, EvalResult, Job, TrainingConfig, TrainingData
from rdpfl_sim.learning.datasets.dataset import Augmentation, Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import TrainingResult
from rdpfl_sim.methods.base import TrainingTask
from rdpfl_sim.randomness import Streams


@dataclass(frozen=True)
class WorkerPayload:
    """All that a worker needs; `sets` travel apart, since there are better ways for large things."""

    model: FlatModel
    shards: list[np.ndarray]
    poisoned: list[int]
    personal_tests: list[np.ndarray]
    global_test: np.ndarray
    augment: Augmentation | None
    settings: TrainingConfig
    streams: Streams
    num_threads: int

    @classmethod
    def packed(cls, model: FlatModel, training_data: TrainingData) -> tuple[WorkerPayload, list[Tensor]]:
        """The luggage, and the sets: x and y for training, false labels, x and y for tests."""
        train, test = training_data.shards[0], training_data.global_test
        false = next((shard.y for shard in training_data.poisoned.values()), train.y)
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
        )
        return payload, [train.x, train.y, false, test.x, test.y]

    def unpacked(self, sets: Sequence[Tensor]) -> TrainingData:
        """The materials, on the device of the sets."""
        x, y, false, x_test, y_test = sets

        def part(x: Tensor, y: Tensor, indices: np.ndarray, augment: Augmentation | None = None) -> Shard:
            return Shard(x, y, torch.from_numpy(indices).to(x.device), augment)

        return TrainingData(
            [part(x, y, indices, self.augment) for indices in self.shards],
            {client: part(x, false, self.shards[client], self.augment) for client in self.poisoned},
            [part(x_test, y_test, indices) for indices in self.personal_tests],
            part(x_test, y_test, self.global_test),
            self.settings,
            self.streams,
        )


class Worker:
    """Does jobs in another process, on a device of its own; whatever comes and goes is on the CPU."""

    def __init__(
        self, payload: WorkerPayload, sets: Sequence[Tensor], device: torch.device = devices.CPU
    ) -> None:
        if device.type == "cuda" and not torch.cuda.is_available():
            raise RunError("torch cannot use the GPU of a worker; execution.device = 'cpu' does without it")
        keep_freed_memory()
        devices.prepare(device)
        set_repeatable(payload.num_threads, device)
        self.device = device
        self.model = payload.model.on(device)
        self.training_data = payload.unpacked([tensor.to(device) for tensor in sets])

    def train(self, job: Job) -> TrainingResult:
        """Do a job."""
        job = replace(job, task=_moved(job.task, self.device))
        return _moved(self.training_data.train(self.model, job), devices.CPU)

    def evaluate(self, eval_job: EvalJob) -> EvalResult:
        """Test a model."""
        return self.training_data.evaluate(self.model, _moved(eval_job, self.device))

    def device_kind(self) -> str:
        """The kind of device that trains here."""
        return devices.kind(self.device)


V = TypeVar("V", TrainingTask, TrainingResult, EvalJob)


def _moved(value: V, device: torch.device) -> V:
    """Return the value with its tensors on a device."""
    entries = {field.name: getattr(value, field.name) for field in fields(value)}
    moved: dict[str, Any] = {key: x.to(device) for key, x in entries.items() if isinstance(x, Tensor)}
    return replace(value, **moved)
