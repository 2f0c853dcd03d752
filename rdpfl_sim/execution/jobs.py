"""What is to be computed for clients: local training, and tests of models. Executors choose where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from rdpfl_sim.execution.devices import DeviceName
from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.evaluation import Evaluation, evaluate
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import OwnBatch, TrainingResult, batches, num_local_steps, train
from rdpfl_sim.methods.base import TrainingTask
from rdpfl_sim.randomness import Streams


@dataclass(frozen=True)
class TrainingConfig:
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
    """One client's local training of one round, with all its inputs but the data."""

    client: int
    task: TrainingTask
    seed: int
    poisoned: bool = False
    """Whether its labels are false."""


@dataclass(frozen=True)
class EvalJob:
    """A client's model that is to be tested, on the client's own test set and maybe on the global one."""

    client: int
    w: Tensor
    is_global: bool = False


@dataclass(frozen=True)
class EvalResult:
    """How good a model is on its client's own test set and, if that was asked for, on the global one."""

    personal: Evaluation
    everything: Evaluation | None


@dataclass(frozen=True)
class TrainingData:
    """What all jobs share: every client's data, and how to train."""

    shards: Sequence[Shard]
    poisoned: Mapping[int, Shard]
    """The data of Byzantine clients with false labels, for attacks that want them."""
    personal_tests: Sequence[Shard]
    global_test: Shard
    settings: TrainingConfig
    streams: Streams
    device: DeviceName = "cpu"
    """Where workers of other processes train: auto is a GPU if they have one."""

    def job(self, client: int, round_: int, task: TrainingTask, poisoned: bool = False) -> Job:
        """The training of a client in a round."""
        return Job(client, task, self.streams.key("training", client, round_), poisoned)

    def shard(self, job: Job) -> Shard:
        """The data that a job trains on."""
        return self.poisoned[job.client] if job.poisoned else self.shards[job.client]

    def batch(self, model: FlatModel, client: int, round_: int) -> OwnBatch:
        """A batch of the client's own data, drawn anew in every round."""
        shard = self.shards[client]
        seed = self.streams.key("examination", client, round_)
        (positions,) = batches(len(shard), self.settings.batch_size, 1, seed)
        x, labels = shard.take(positions.to(model.vector.device))
        return OwnBatch(model, x, labels)

    def train(self, model: FlatModel, job: Job) -> TrainingResult:
        """Do a job now, on this model."""
        task = job.task
        [w] = task.w
        trained = self._train(model, job, w)
        if task.second_w is None:
            return trained
        [second_w] = task.second_w
        second = self._train(model, job, second_w, proximal_to=w, proximal_mu=task.proximal_mu)
        return replace(trained, second_w=second.w)

    def momentum(self, task: TrainingTask) -> float:
        """That of the work, or the scenario's."""
        return self.settings.momentum if task.momentum is None else task.momentum

    def _train(
        self,
        model: FlatModel,
        job: Job,
        w: Tensor,
        proximal_to: Tensor | None = None,
        proximal_mu: float = 0.0,
    ) -> TrainingResult:
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

    def evaluate(self, model: FlatModel, eval_job: EvalJob) -> EvalResult:
        """Test a model now."""
        everything = evaluate(model, eval_job.w, self.global_test) if eval_job.is_global else None
        return EvalResult(evaluate(model, eval_job.w, self.personal_tests[eval_job.client]), everything)
