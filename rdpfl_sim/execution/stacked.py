"""Training many clients at once, in this process.

Jobs that are under way at the same simulated time have all their inputs. When the first result is due, all of
them are computed together. For small models that is many times as fast as one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from rdpfl_sim.execution.executor import Executor
from rdpfl_sim.execution.jobs import EvalJob, EvalResult, Job, TrainingData
from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.evaluation import Evaluation, evaluate_stacked
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.stacked_models import StackedModel
from rdpfl_sim.learning.stacked_training import BatchedClient, train_stacked
from rdpfl_sim.learning.training import TrainingResult

MAX_FLOATS = 1 << 22
"""So many numbers of models and batches are in use at a time: more would not stay near the processor."""


class BatchedJob:
    """A job that waits to be computed together with others."""

    def __init__(self, executor: Stacked, job: Job) -> None:
        self.executor = executor
        self.job = job
        self.trained: TrainingResult | None = None

    def result(self) -> TrainingResult:
        """The outcome; computes all that waits if it is not there yet."""
        if self.trained is None:
            self.executor.compute()
        assert self.trained is not None, "a client asked for the result of a job that it has replaced"
        return self.trained


class Stacked(Executor):
    """All jobs that are under way, batched over clients: for many clients with small models."""

    together = True

    def __init__(self, model: FlatModel, training_data: TrainingData) -> None:
        super().__init__(model, training_data)
        self.stack = StackedModel(model)
        self.waiting: dict[int, BatchedJob] = {}
        """By client: one that has crashed begins a new job, and nobody will ask for the old one."""
        self.num_steps = [training_data.settings.num_steps(len(shard)) for shard in training_data.shards]
        self.example_size = training_data.global_test.x[0].numel()

    def start(self, job: Job) -> BatchedJob:
        """Let it wait for the first result that is due."""
        waiting = self.waiting[job.client] = BatchedJob(self, job)
        return waiting

    def compute(self) -> None:
        """Do all jobs that wait."""
        waiting, self.waiting = list(self.waiting.values()), {}
        for group in self._groups(waiting):
            for one, trained in zip(group, self._train([one.job for one in group]), strict=True):
                one.trained = trained

    def close(self) -> None:
        """Forget what nobody has asked for."""
        self.waiting.clear()

    def evaluate_many(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Personal test sets, then the global one, each for many models at once."""
        tests, whole = self.training_data.personal_tests, self.training_data.global_test
        personal = self._evaluate([job.w for job in jobs], [tests[job.client] for job in jobs])
        asked = [job.w for job in jobs if job.is_global]
        everything = iter(self._evaluate(asked, [whole] * len(asked)))
        return [
            EvalResult(evaluation, next(everything) if job.is_global else None)
            for job, evaluation in zip(jobs, personal, strict=True)
        ]

    def _evaluate(self, models: Sequence[Tensor], shards: Sequence[Shard]) -> list[Evaluation]:
        """In groups of shards that are about equally long."""
        found: dict[int, Evaluation] = {}
        places = sorted(range(len(models)), key=lambda place: len(shards[place]))
        room = self._room(256)
        for start in range(0, len(places), room):
            group = places[start : start + room]
            evaluations = evaluate_stacked(
                self.stack, [models[place] for place in group], [shards[place] for place in group]
            )
            found.update(zip(group, evaluations, strict=True))
        return [found[place] for place in range(len(models))]

    def _groups(self, waiting: Sequence[BatchedJob]) -> Iterator[list[BatchedJob]]:
        """Jobs that can be done together: of the same kind, with similar numbers of steps, not too many."""
        room = self._room(self.training_data.settings.batch_size)
        alike: dict[tuple[object, ...], list[BatchedJob]] = {}
        for one in waiting:
            alike.setdefault(self._kind(one.job), []).append(one)
        for group in alike.values():
            group.sort(key=lambda one: -self.num_steps[one.job.client])
            yield from (group[start : start + room] for start in range(0, len(group), room))

    def _kind(self, job: Job) -> tuple[object, ...]:
        """What has to be the same in a group."""
        task = job.task
        bent = task.mask is not None, task.second_w is not None
        return job.poisoned, *bent, self.training_data.momentum(task), task.proximal_mu

    def _room(self, batch_size: int) -> int:
        """How many clients are computed at a time."""
        return max(1, MAX_FLOATS // (4 * self.model.num_parameters + 2 * batch_size * self.example_size))

    def _train(self, jobs: Sequence[Job]) -> list[TrainingResult]:
        starts = [job.task.w[0] for job in jobs]
        trained = self._pass(jobs, starts)
        second_starts = [job.task.second_w[0] for job in jobs if job.task.second_w is not None]
        if not second_starts:
            return trained
        proximal_mu = jobs[0].task.proximal_mu
        others = self._pass(jobs, second_starts, proximal_to=starts, proximal_mu=proximal_mu)
        return [replace(one, second_w=other.w) for one, other in zip(trained, others, strict=True)]

    def _pass(
        self,
        jobs: Sequence[Job],
        starts: Sequence[Tensor],
        proximal_to: Sequence[Tensor] | None = None,
        proximal_mu: float = 0.0,
    ) -> list[TrainingResult]:
        data, settings = self.training_data, self.training_data.settings
        targets: Sequence[Tensor | None] = proximal_to or [None] * len(jobs)
        clients = [
            BatchedClient(
                w,
                data.shard(job),
                self.num_steps[job.client],
                job.seed,
                mask=None if job.task.mask is None else job.task.mask[0],
                proximal_to=target,
            )
            for job, w, target in zip(jobs, starts, targets, strict=True)
        ]
        return train_stacked(
            self.stack,
            clients,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=data.momentum(jobs[0].task),
            weight_decay=settings.weight_decay,
            proximal_mu=proximal_mu,
        )
