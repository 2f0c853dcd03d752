"""Executors compute the jobs of clients. The base class computes each job in this process, when it is needed.

A job has two parts. The update is needed when the client is evaluated, stops, or ends its next training. The
result of the training is needed when the training ends. Derived classes compute them earlier, elsewhere, or
for many clients together. Simulated time never depends on the executor. Results differ in the last bits at
most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rdpfl_sim.components.options import LARGE, SMALL
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import note_client_round
from rdpfl_sim.execution import devices
from rdpfl_sim.execution.devices import DeviceName, keep_freed_memory
from rdpfl_sim.inputs import call_read_only
from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.evaluation import Evaluation, Predictions, evaluate
from rdpfl_sim.learning.models import FlatModel, Precision
from rdpfl_sim.learning.training import OwnBatch, batches, num_local_steps, train
from rdpfl_sim.methods.base import ClientView, Method, Payload, Trained, TrainingTask
from rdpfl_sim.methods.batching import Updated, UpdateInput, update_in_batches
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.jobs import FinishedJob, JobResult, RoundJob


@dataclass(frozen=True, kw_only=True)
class ExecutorFacts(Facts):
    """Metadata of an executor, set by its decorator."""

    is_remote: bool = False
    """Whether models are trained by processes that choose their own devices."""
    is_batched: bool = False
    """Whether clients are always computed together, so that on a GPU the last bits depend on the batch."""


EXECUTORS = Registry("executor", ExecutorFacts)
executor = EXECUTORS.register


class PendingJob:
    """A submitted round job and its results so far.

    It does not refer to the previous job; otherwise no job would ever be freed.
    """

    __slots__ = (
        *("client", "degree", "executor", "known_result", "known_update", "messages"),
        *("poisoned", "previous_result", "round", "trains", "__weakref__"),
    )

    def __init__(self, job: RoundJob, executor: Executor) -> None:
        self.executor = executor
        self.client = job.client
        self.round = job.round
        self.degree = job.degree
        self.poisoned = job.poisoned
        self.trains = job.trains
        self.messages = job.messages
        """The messages of the pending update; None once it is computed."""
        self.previous_result = None if job.messages is None else job.previous.result
        """The result of the previous job, until the update is computed."""
        self.known_update = job.previous.updated if job.messages is None else None
        self.known_result: JobResult | None = None

    @property
    def updated(self) -> Updated:
        """The state after the update, and the method's diagnostics of the last finished round."""
        if self.known_update is None:
            self.executor.compute_update(self)
        assert self.known_update is not None
        return self.known_update

    @property
    def result(self) -> JobResult:
        """The result of local training and the payload to send."""
        assert self.trains, "this job does not train"
        if self.known_result is None:
            self.executor.compute_result(self)
        assert self.known_result is not None, "the job was replaced by a later job of its client"
        return self.known_result

    def to_value(self) -> FinishedJob:
        """Return the results so far for a checkpoint; compute the update if it is pending."""
        return FinishedJob(self.updated, self.known_result)


@dataclass(frozen=True)
class RoundComputation:
    """Computes the parts of round jobs with one model, which no other thread uses."""

    model: FlatModel
    training_data: TrainingData
    method: Method
    with_message_stats: bool
    """Whether to compute statistics of single messages."""

    def update(self, jobs: Sequence[PendingJob]) -> None:
        """Compute the updates of jobs in batches, and release the messages that they use."""
        inputs = [self._update_input(job) for job in jobs]
        for job, updated in zip(
            jobs, update_in_batches(self.method, inputs, self.with_message_stats), strict=True
        ):
            assert job.previous_result is not None
            job.known_update = updated._replace(velocity=job.previous_result.trained.velocity)
            job.messages = job.previous_result = None

    def _update_input(self, job: PendingJob) -> UpdateInput:
        messages, previous = job.messages, job.previous_result
        assert messages is not None
        assert previous is not None
        client = ClientView(job.client, job.round - 1, job.degree, self)  # the round that has finished
        return UpdateInput(previous.state, previous.trained, messages, client)

    def training_job(self, job: PendingJob) -> TrainingJob:
        """Return the local training of a job. If its update is pending, compute it first."""
        updated = job.updated
        task = call_read_only(self.method.training, updated.state)
        return self.training_data.job(job.client, job.round, task, job.poisoned, updated.velocity)

    def train(self, job: PendingJob) -> None:
        """Train and build the payload."""
        self.finish(job, self.training_data.train(self.model, self.training_job(job)))

    def finish(self, job: PendingJob, trained: Trained) -> None:
        """Build the payload from the result of the training, and set the result of the job."""
        client = ClientView(job.client, job.round, job.degree, self)
        try:
            state, outgoing = call_read_only(self.method.payload, job.updated.state, trained, [client])
        except Exception as error:
            note_client_round(error, job.client, job.round)
            raise
        payload = Payload(outgoing.vectors[0], None if outgoing.masks is None else outgoing.masks[0])
        job.known_result = JobResult(state, trained, payload)

    def seed(self, purpose: str, client: int, round_: int) -> int:
        """Return the seed for one purpose, client and round."""
        return self.training_data.streams.key(purpose, client, round_)

    def batch(self, client: int, round_: int) -> OwnBatch:
        """Return a batch of a client's own data, a different one in every round."""
        return self.training_data.batch(self.model, client, round_)


class Executor:
    """Computes the round jobs of one run, and evaluates models.

    Derived classes compute jobs elsewhere or in batches. Threads, processes and connections are started when
    the first job needs them.
    """

    warning: str | None = None
    """Reason for using a different executor than configured, or None."""

    def __init__(self, computation: RoundComputation) -> None:
        self.computation = computation
        self.model = computation.model
        self.training_data = computation.training_data
        keep_freed_memory()

    @property
    def device_kind(self) -> str:
        """The GPU model used for training, or `cpu`. The last bits of results depend on it."""
        return devices.kind(self.model.vector.device)

    def submit(self, job: RoundJob) -> PendingJob:
        """Accept a job, which is computed at the latest when its results are requested."""
        return PendingJob(job, self)

    def compute_update(self, job: PendingJob) -> None:
        """Set `known_update` of this job. Derived classes may compute other pending jobs too."""
        self.computation.update([job])

    def compute_result(self, job: PendingJob) -> None:
        """Set `known_result` of this job. Derived classes may compute other pending jobs too."""
        self.computation.train(job)

    def evaluate(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Return the results of all jobs, in order. An initial model that clients share is evaluated once.

        Later models are evaluated one by one, because which of them share memory differs in a resumed run.
        """
        indices_of_model: dict[tuple[bool, int], list[int]] = {}
        for i, job in enumerate(jobs):
            model = job.w.data_ptr() if job.is_initial else i
            indices_of_model.setdefault((job.is_initial, model), []).append(i)
        unshared = [indices[0] for indices in indices_of_model.values() if len(indices) == 1]
        results = dict(zip(unshared, self.evaluate_many([jobs[i] for i in unshared]), strict=True))
        for indices in indices_of_model.values():
            if len(indices) > 1:
                results.update(zip(indices, self._evaluate_shared([jobs[i] for i in indices]), strict=True))
        return [results[i] for i in range(len(jobs))]

    def _evaluate_shared(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Return the results of jobs that have the same model."""
        personal_tests, global_test = self.training_data.personal_tests, self.training_data.global_test
        predictions = Predictions.of(self.model, jobs[0].w, global_test)
        on_global = predictions.on(global_test)
        return [
            EvalResult(
                predictions.on(personal_tests[job.client]),
                on_global if job.is_global else None,
                self.training_data.validate(self.model, job),
            )
            for job in jobs
        ]

    def evaluate_many(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Return the results of jobs with different models."""
        return [self.training_data.evaluate(self.model, job) for job in jobs]

    def close(self) -> None:
        """Stop threads, processes and connections that were started."""


@executor
class Inline(Executor):
    """One job at a time, in this process, without startup time or copies."""


@dataclass(frozen=True)
class TrainingConfig:
    """Hyperparameters of local training, the same for all clients."""

    batch_size: int
    learning_rate: float
    schedule: Callable[[int, int], float]
    rounds: int
    momentum: float
    momentum_over_rounds: bool
    weight_decay: float
    clip_gradient: float | None
    precision: Precision
    local_epochs: int
    local_steps: int | None

    def learning_rate_in(self, round_: int) -> float:
        """Return eta_t > 0 in a client's round, which counts from 1."""
        rate = self.learning_rate * self.schedule(round_ - 1, self.rounds)
        return min(max(rate, SMALL), LARGE)  # because of float32

    def num_steps(self, num_samples: int) -> int:
        """Return K_i, the local steps per round of a client with `num_samples` examples."""
        return num_local_steps(num_samples, self.batch_size, self.local_epochs, self.local_steps)


class TrainingJob(NamedTuple):
    """Local training of one client in one round: all inputs except the data."""

    client: int
    task: TrainingTask
    seed: int
    learning_rate: float
    poisoned: bool = False
    """Whether to train on poisoned labels."""
    velocity: Tensor | None = None
    """(1, models, d), the momentum of the last round, if it continues; None for zero."""


@dataclass(frozen=True)
class EvalJob:
    """Evaluation of a client's model on its personal test set and, with `is_global`, on the global one.

    If clients have validation examples, it includes those of this client.
    """

    client: int
    w: Tensor
    is_global: bool = False
    is_initial: bool = False
    """Whether it belongs to the evaluation of all clients before the first event."""


@dataclass(frozen=True)
class EvalResult:
    """Accuracy and loss of a model on the personal test set and, if requested, on the global one."""

    personal: Evaluation
    on_global: Evaluation | None
    validation: Evaluation | None = None
    """On the validation examples of the client, if there are any."""


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
    validation: Sequence[Shard] = ()
    """The validation examples of every client; empty without a validation split."""

    def job(
        self,
        client: int,
        round_: int,
        task: TrainingTask,
        poisoned: bool = False,
        velocity: Tensor | None = None,
    ) -> TrainingJob:
        """Return the training job of a client in a round."""
        seed, learning_rate = (
            self.streams.key("training", client, round_),
            self.settings.learning_rate_in(round_),
        )
        return TrainingJob(client, task, seed, learning_rate, poisoned, velocity)

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
        task, velocity = job.task, self.velocity(job)
        velocities = [None, None] if velocity is None else [*velocity.squeeze(0)]
        [w] = task.w
        trained_w, loss = self._train(model, job, w, velocities[0])
        second_w = None
        if task.second_w is not None:
            [start] = task.second_w
            second_w, _ = self._train(model, job, start, velocities[1], w, task.proximal_mu)
        num_steps = self.settings.num_steps(len(self.shard(job)))
        return Trained(
            trained_w.unsqueeze(0),
            (num_steps,),
            (loss,),
            (job.learning_rate,),
            None if second_w is None else second_w.unsqueeze(0),
            velocity=velocity,
        )

    def velocity(self, job: TrainingJob) -> Tensor | None:
        """Return the velocities with which a job starts, as a new tensor; None if they are not kept."""
        if not self.settings.momentum_over_rounds:
            return None
        if job.velocity is not None:
            return job.velocity.clone()
        return torch.stack([torch.zeros_like(w) for w in job.task.models], dim=1)

    def momentum(self, task: TrainingTask) -> float:
        """Return the task's momentum, or the scenario's if the task sets none."""
        return self.settings.momentum if task.momentum is None else task.momentum

    def _train(
        self,
        model: FlatModel,
        job: TrainingJob,
        w: Tensor,
        velocity: Tensor | None,
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
            learning_rate=job.learning_rate,
            momentum=self.momentum(job.task),
            velocity=velocity,
            weight_decay=settings.weight_decay,
            clip_norm=settings.clip_gradient,
            mask=None if job.task.mask is None else job.task.mask[0],
            proximal_to=proximal_to,
            proximal_mu=proximal_mu,
            precision=settings.precision,
            seed=job.seed,
        )

    def evaluate(self, model: FlatModel, job: EvalJob) -> EvalResult:
        """Run an evaluation job with this model."""
        on_global = evaluate(model, job.w, self.global_test) if job.is_global else None
        personal = evaluate(model, job.w, self.personal_tests[job.client])
        return EvalResult(personal, on_global, self.validate(model, job))

    def validate(self, model: FlatModel, job: EvalJob) -> Evaluation | None:
        """Evaluate on the client's validation examples, if there are any."""
        return evaluate(model, job.w, self.validation[job.client]) if self.validation else None
