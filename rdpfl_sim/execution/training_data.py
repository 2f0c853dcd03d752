"""Training and evaluation jobs, and the data on which they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from rdpfl_sim.execution.devices import DeviceName
from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.evaluation import Evaluation, evaluate
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import OwnBatch, batches, num_local_steps, train
from rdpfl_sim.methods.base import Trained, TrainingTask
from rdpfl_sim.randomness import Streams


@dataclass(frozen=True)
class TrainingConfig:
    """Hyperparameters of local training, the same for all clients."""

    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    local_epochs: int
    local_steps: int | None

    def num_steps(self, num_samples: int) -> int:
        """Return K_i, the local steps per round of a client with `num_samples` examples."""
        return num_local_steps(num_samples, self.batch_size, self.local_epochs, self.local_steps)


class TrainingJob(NamedTuple):
    """Local training of one client in one round: all inputs except the data."""

    client: int
    task: TrainingTask
    seed: int
    poisoned: bool = False
    """Whether to train on poisoned labels."""


@dataclass(frozen=True)
class EvalJob:
    """Evaluation of a client's model on its personal test set and, with `is_global`, on the global one."""

    client: int
    w: Tensor
    is_global: bool = False


@dataclass(frozen=True)
class EvalResult:
    """Accuracy and loss of a model on the personal test set and, if requested, on the global one."""

    personal: Evaluation
    on_global: Evaluation | None


@dataclass(frozen=True)
class TrainingData:
    """Data of all clients and training settings, shared by all jobs."""

    shards: Sequence[Shard]
    poisoned: Mapping[int, Shard]
    """Data of Byzantine clients with poisoned labels, for attacks that poison data."""
    personal_tests: Sequence[Shard]
    global_test: Shard
    settings: TrainingConfig
    streams: Streams
    device: DeviceName = "cpu"
    """Device for worker processes; `auto` selects a GPU if one is available."""

    def job(self, client: int, round_: int, task: TrainingTask, poisoned: bool = False) -> TrainingJob:
        """Return the training job of a client in a round."""
        return TrainingJob(client, task, self.streams.key("training", client, round_), poisoned)

    def shard(self, job: TrainingJob) -> Shard:
        """Return the training data of a job."""
        return self.poisoned[job.client] if job.poisoned else self.shards[job.client]

    def batch(self, model: FlatModel, client: int, round_: int) -> OwnBatch:
        """Draw a batch of the client's own data, a different one in every round."""
        shard = self.shards[client]
        seed = self.streams.key("batch", client, round_)
        (positions,) = batches(len(shard), self.settings.batch_size, 1, seed)
        x, labels = shard.take(positions.to(model.vector.device))
        return OwnBatch(model, x, labels)

    def train(self, model: FlatModel, job: TrainingJob) -> Trained:
        """Run a training job with this model."""
        task = job.task
        [w] = task.w
        trained_w, loss = self._train(model, job, w)
        second_w = None
        if task.second_w is not None:
            [start] = task.second_w
            second_w, _ = self._train(model, job, start, proximal_to=w, proximal_mu=task.proximal_mu)
        num_steps = self.settings.num_steps(len(self.shard(job)))
        return Trained(
            trained_w.unsqueeze(0),
            (num_steps,),
            (loss,),
            None if second_w is None else second_w.unsqueeze(0),
        )

    def momentum(self, task: TrainingTask) -> float:
        """Return the task's momentum, or the scenario's if the task sets none."""
        return self.settings.momentum if task.momentum is None else task.momentum

    def _train(
        self,
        model: FlatModel,
        job: TrainingJob,
        w: Tensor,
        proximal_to: Tensor | None = None,
        proximal_mu: float = 0.0,
    ) -> tuple[Tensor, float]:
        settings, shard = self.settings, self.shard(job)
        return train(
            model,
            w,
            shard,
            num_steps=settings.num_steps(len(shard)),
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=self.momentum(job.task),
            weight_decay=settings.weight_decay,
            mask=None if job.task.mask is None else job.task.mask[0],
            proximal_to=proximal_to,
            proximal_mu=proximal_mu,
            seed=job.seed,
        )

    def evaluate(self, model: FlatModel, job: EvalJob) -> EvalResult:
        """Run an evaluation job with this model."""
        on_global = evaluate(model, job.w, self.global_test) if job.is_global else None
        return EvalResult(evaluate(model, job.w, self.personal_tests[job.client]), on_global)
