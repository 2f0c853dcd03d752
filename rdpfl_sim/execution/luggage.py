"""Model, data and settings in a form that travels to other processes: a data set once, not once a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rdpfl_sim.execution.arithmetic import set_repeatable
from rdpfl_sim.execution.jobs import Exam, Job, Marks, Materials, Settings
from rdpfl_sim.execution.memory import keep_freed_memory
from rdpfl_sim.learning.data import Augmentation, Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import Trained
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
        """The materials."""
        x, y, false, x_test, y_test = sets

        def part(x: Tensor, y: Tensor, indices: np.ndarray, augment: Augmentation | None = None) -> Shard:
            return Shard(x, y, torch.from_numpy(indices), augment)

        return Materials(
            [part(x, y, indices, self.augment) for indices in self.shards],
            {client: part(x, false, self.shards[client], self.augment) for client in self.poisoned},
            [part(x_test, y_test, indices) for indices in self.personal_tests],
            part(x_test, y_test, self.global_test),
            self.settings,
            self.streams,
        )


class Worker:
    """Somebody in another process who does jobs."""

    def __init__(self, luggage: Luggage, sets: Sequence[Tensor]) -> None:
        keep_freed_memory()
        set_repeatable(luggage.num_threads)
        self.model = luggage.model
        self.materials = luggage.unpacked(sets)

    def train(self, job: Job) -> Trained:
        """Do a job."""
        return self.materials.train(self.model, job)

    def examine(self, exam: Exam) -> Marks:
        """Test a model."""
        return self.materials.examine(self.model, exam)
