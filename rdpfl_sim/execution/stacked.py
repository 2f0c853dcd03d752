"""Compute the jobs of many clients in batches, in this process.

All inputs of a pending job are known. When the first result is requested, all pending jobs are computed. When
the first update is requested, for example by an evaluation, all pending updates are computed. For small
models this is many times faster than one job at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from typing_extensions import override

from rdpfl_sim.execution.executor import (
    EvalJob,
    EvalResult,
    Executor,
    PendingJob,
    RoundComputation,
    TrainingJob,
)
from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.evaluation import Evaluation, evaluate_stacked
from rdpfl_sim.learning.stacked import (
    NotStackableError,
    StackedClient,
    StackedModel,
    StackedResult,
    train_stacked,
)
from rdpfl_sim.methods.base import Trained
from rdpfl_sim.world.jobs import RoundJob

MAX_FLOATS = 1 << 22
"""Maximum number of floats in models and batches in use at the same time, to fit into the CPU cache."""


class Stacked(Executor):
    """Computes all pending jobs in batches of clients; for many clients with small models."""

    def __init__(self, computation: RoundComputation) -> None:
        super().__init__(computation)
        training_data = self.training_data
        if training_data.settings.precision != "float32":
            raise NotStackableError(f"training.precision is {training_data.settings.precision!r}")
        self.stack = StackedModel(self.model)
        self.pending: dict[int, PendingJob] = {}
        """By client. A client that has crashed submits a new job, which replaces the old one."""
        self.num_steps = [training_data.settings.num_steps(len(shard)) for shard in training_data.shards]
        self.example_size = training_data.global_test.x[0].numel()

    @override
    def submit(self, job: RoundJob) -> PendingJob:
        """Add the job to the pending ones."""
        self.pending[job.client] = submitted = super().submit(job)
        return submitted

    @override
    def compute_update(self, job: PendingJob) -> None:
        """Compute the updates of all pending jobs."""
        self.computation.update([other for other in self.pending.values() if other.known_update is None])

    @override
    def compute_result(self, job: PendingJob) -> None:
        """Compute all pending jobs."""
        self.compute_update(job)
        to_train = [pending for pending in self.pending.values() if pending.trains]
        self.pending = {}
        training_job = self.computation.training_job
        for group in self._groups([(pending, training_job(pending)) for pending in to_train]):
            results = self._train([training for _, training in group])
            for (pending, _), result in zip(group, results, strict=True):
                self.computation.finish(pending, result)

    @override
    def close(self) -> None:
        """Discard pending jobs."""
        self.pending.clear()

    @override
    def evaluate_many(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Evaluate models in batches: on personal test sets, on the global one and on validation examples."""
        data, models = self.training_data, [job.w for job in jobs]
        personal = self._evaluate(models, [data.personal_tests[job.client] for job in jobs])
        global_models = [job.w for job in jobs if job.is_global]
        on_global = iter(self._evaluate(global_models, [data.global_test] * len(global_models)))
        validation: Sequence[Evaluation | None] = [None] * len(jobs)
        if data.validation:
            validation = self._evaluate(models, [data.validation[job.client] for job in jobs])
        return [
            EvalResult(on_personal, next(on_global) if job.is_global else None, on_validation)
            for job, on_personal, on_validation in zip(jobs, personal, validation, strict=True)
        ]

    def _evaluate(self, models: Sequence[Tensor], shards: Sequence[Shard]) -> list[Evaluation]:
        """Evaluate models in groups with shards of similar size."""
        results: dict[int, Evaluation] = {}
        by_size = sorted(range(len(models)), key=lambda i: len(shards[i]))
        max_clients = self._max_clients(256)
        for start in range(0, len(by_size), max_clients):
            group = by_size[start : start + max_clients]
            evaluations = evaluate_stacked(self.stack, [models[i] for i in group], [shards[i] for i in group])
            results.update(zip(group, evaluations, strict=True))
        return [results[i] for i in range(len(models))]

    def _groups(
        self, pending: Sequence[tuple[PendingJob, TrainingJob]]
    ) -> Iterator[list[tuple[PendingJob, TrainingJob]]]:
        """Split jobs into groups of limited size with equal settings and similar numbers of steps."""
        max_clients = self._max_clients(self.training_data.settings.batch_size)
        by_settings: dict[tuple[object, ...], list[tuple[PendingJob, TrainingJob]]] = {}
        for job, training in pending:
            by_settings.setdefault(self._settings(training), []).append((job, training))
        for group in by_settings.values():
            group.sort(key=lambda pair: (-self.num_steps[pair[0].client], pair[1].learning_rate))
            yield from (group[start : start + max_clients] for start in range(0, len(group), max_clients))

    def _settings(self, job: TrainingJob) -> tuple[object, ...]:
        """Return the settings that all jobs of a group must share; poisoned jobs have different labels."""
        task = job.task
        return (
            job.poisoned,
            task.mask is not None,
            task.second_w is not None,
            self.training_data.momentum(task),
            task.proximal_mu,
        )

    def _max_clients(self, batch_size: int) -> int:
        """Return the maximum number of clients per batch."""
        return max(1, MAX_FLOATS // (4 * self.model.num_parameters + 2 * batch_size * self.example_size))

    def _train(self, jobs: Sequence[TrainingJob]) -> list[Trained]:
        velocities: Sequence[Tensor | None] = [self.training_data.velocity(job) for job in jobs]
        starts = [job.task.w for job in jobs]
        first = self._train_from(jobs, starts, velocities, 0)
        seconds: Sequence[Tensor | None] = [None] * len(jobs)
        results = [first]
        second_starts = [job.task.second_w for job in jobs if job.task.second_w is not None]
        if second_starts:
            mu = jobs[0].task.proximal_mu
            results.append(self._train_from(jobs, second_starts, velocities, 1, starts, mu))
            seconds = _rows(results[1].w)
        if velocities[0] is not None:
            after = [result.velocities for result in results if result.velocities is not None]
            velocities = _rows(torch.stack(after, dim=1))
        columns = zip(
            jobs, _rows(first.w), first.losses, seconds, _rows(first.directions), velocities, strict=True
        )
        return [
            Trained(
                w, (self.num_steps[job.client],), (loss,), (job.learning_rate,), second_w, direction, velocity
            )
            for job, w, loss, second_w, direction, velocity in columns
        ]

    def _train_from(
        self,
        jobs: Sequence[TrainingJob],
        starts: Sequence[Tensor],
        velocities: Sequence[Tensor | None],
        number: int,
        proximal_to: Sequence[Tensor] | None = None,
        proximal_mu: float = 0.0,
    ) -> StackedResult:
        """Train one model of every job; `number` is its place among the models of its job."""
        data, settings = self.training_data, self.training_data.settings
        targets: Sequence[Tensor | None] = proximal_to or [None] * len(jobs)
        clients = [
            StackedClient(
                w,
                data.shard(job),
                self.num_steps[job.client],
                job.seed,
                job.learning_rate,
                job.task.mask,
                target,
                None if velocity is None else velocity[:, number],
            )
            for job, w, target, velocity in zip(jobs, starts, targets, velocities, strict=True)
        ]
        return train_stacked(
            self.stack,
            clients,
            batch_size=settings.batch_size,
            momentum=data.momentum(jobs[0].task),
            weight_decay=settings.weight_decay,
            clip_norm=settings.clip_gradient,
            proximal_mu=proximal_mu,
        )


def _rows(values: Tensor) -> list[Tensor]:
    """Return copies of the rows, (1, d) each, so that no client keeps the whole matrix in memory."""
    return [row.clone() for row in torch.split(values, 1)]
