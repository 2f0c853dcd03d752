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
from rdpfl_sim.execution.jobs import Exam, Job, Marks, Materials, Settings
from rdpfl_sim.learning.datasets.dataset import Augmentation, Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import Trained
from rdpfl_sim.methods.exchange import Work
from rdpfl_sim.randomness import Streams


@dataclass(frozen=True)
class Luggage:
    """All that a worker needs; `sets` travel apart, since there are better ways for large things."""

    model: FlatModel
    shards: list[np.ndarray]
    poisoned: list[int]
    personal_tests: list[np.ndarray]
    global_test: np.ndarray
    augment: Augmentation | None
    settings: Settings
    streams: Streams
    num_threads: int

    @classmethod
    def packed(cls, model: FlatModel, materials: Materials) -> tuple[Luggage, list[Tensor]]:
        """The luggage, and the sets: x and y for training, false labels, x and y for tests."""
        train, test = materials.shards[0], materials.global_test
        false = next((shard.y for shard in materials.poisoned.values()), train.y)
        luggage = cls(
            model,
            [shard.indices.numpy() for shard in materials.shards],
            list(materials.poisoned),
            [shard.indices.numpy() for shard in materials.personal_tests],
            test.indices.numpy(),
            train.augment,
            materials.settings,
            materials.streams,
            torch.get_num_threads(),
        )
        return luggage, [train.x, train.y, false, test.x, test.y]

    def unpacked(self, sets: Sequence[Tensor]) -> Materials:
        """The materials, on the device of the sets."""
        x, y, false, x_test, y_test = sets

        def part(x: Tensor, y: Tensor, indices: np.ndarray, augment: Augmentation | None = None) -> Shard:
            return Shard(x, y, torch.from_numpy(indices).to(x.device), augment)

        return Materials(
            [part(x, y, indices, self.augment) for indices in self.shards],
            {client: part(x, false, self.shards[client], self.augment) for client in self.poisoned},
            [part(x_test, y_test, indices) for indices in self.personal_tests],
            part(x_test, y_test, self.global_test),
            self.settings,
            self.streams,
        )


class Worker:
    """Does jobs in another process, on a device of its own; whatever comes and goes is on the CPU."""

    def __init__(self, luggage: Luggage, sets: Sequence[Tensor], device: torch.device = devices.CPU) -> None:
        if device.type == "cuda" and not torch.cuda.is_available():
            raise RunError("torch cannot use the GPU of a worker; execution.device = 'cpu' does without it")
        keep_freed_memory()
        devices.prepare(device)
        set_repeatable(luggage.num_threads, device)
        self.device = device
        self.model = luggage.model.on(device)
        self.materials = luggage.unpacked([tensor.to(device) for tensor in sets])

    def train(self, job: Job) -> Trained:
        """Do a job."""
        job = replace(job, work=_moved(job.work, self.device))
        return _moved(self.materials.train(self.model, job), devices.CPU)

    def examine(self, exam: Exam) -> Marks:
        """Test a model."""
        return self.materials.examine(self.model, _moved(exam, self.device))

    def device_kind(self) -> str:
        """The kind of device that trains here."""
        return devices.kind(self.device)


V = TypeVar("V", Work, Trained, Exam)


def _moved(value: V, device: torch.device) -> V:
    """Return the value with its tensors on a device."""
    entries = {field.name: getattr(value, field.name) for field in fields(value)}
    moved: dict[str, Any] = {key: x.to(device) for key, x in entries.items() if isinstance(x, Tensor)}
    return replace(value, **moved)
