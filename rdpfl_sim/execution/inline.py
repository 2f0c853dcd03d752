"""Training in this process, one job after the other, when its result is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from rdpfl_sim.learning.data import Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import OwnBatch, Trained, batches, num_local_steps, train
from rdpfl_sim.maths.types import Work
from rdpfl_sim.randomness import Streams


@dataclass(frozen=True)
class Settings:
    """How every client trains."""

    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    local_epochs: int
    local_steps: int | None

    def num_steps(self, num_samples: int) -> int:
        """K_i of a client with so many examples."""
        return num_local_steps(num_samples, self.batch_size, self.local_epochs, self.local_steps)


@dataclass(frozen=True)
class Job:
    """One client's local training of one round, with all its inputs."""

    executor: Inline
    shard: Shard
    work: Work
    seed: int

    def result(self) -> Trained:
        """Train now."""
        work = self.work
        trained = self._train(work.w)
        if work.companion is None:
            return trained
        companion = self._train(work.companion, anchor=work.w, pull=work.pull)
        return replace(trained, companion=companion.w_tilde)

    def _train(self, w: Tensor, anchor: Tensor | None = None, pull: float = 0.0) -> Trained:
        settings, momentum = self.executor.settings, self.work.momentum
        return train(
            self.executor.model,
            w,
            self.shard,
            num_steps=settings.num_steps(len(self.shard)),
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum if momentum is None else momentum,
            weight_decay=settings.weight_decay,
            mask=self.work.mask,
            anchor=anchor,
            pull=pull,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Inline:
    """The executor that needs nothing: all clients share one model instance."""

    model: FlatModel
    shards: Sequence[Shard]
    poisoned: Mapping[int, Shard]
    """The data of Byzantine clients with false labels, for attacks that want them."""
    settings: Settings
    streams: Streams

    def submit(self, client: int, round_: int, work: Work, poisoned: bool = False) -> Job:
        """A job that runs when its result is asked for."""
        shard = self.poisoned[client] if poisoned else self.shards[client]
        return Job(self, shard, work, self.streams.key("training", client, round_))

    def batch(self, client: int, round_: int) -> OwnBatch:
        """A batch of the client's own data, drawn anew in every round."""
        shard = self.shards[client]
        seed = self.streams.key("examination", client, round_)
        (positions,) = batches(len(shard), self.settings.batch_size, 1, seed)
        x, labels = shard.take(positions.to(self.model.vector.device))
        return OwnBatch(self.model, x, labels)
