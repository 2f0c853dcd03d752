"""What every executor is. Simulated time never depends on it, and of the results at most the last bits do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.execution import devices
from rdpfl_sim.execution.allocation import keep_freed_memory
from rdpfl_sim.execution.jobs import EvalJob, EvalResult, Job, TrainingData
from rdpfl_sim.learning.evaluation import Predictions
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import OwnBatch, TrainingResult
from rdpfl_sim.methods.base import TrainingTask

EXECUTORS = Registry("executor", Facts)
executor = EXECUTORS.register


class Pending(Protocol):
    """A job that was submitted; it may run now, later or elsewhere."""

    def result(self) -> TrainingResult:
        """The outcome; waits for it if need be."""


class Executor(ABC):
    """Trains and examines. What it needs it starts when it has something to do, and again after `close`."""

    together = False
    """Whether what can wait had better be computed for many clients at once."""

    def __init__(self, model: FlatModel, training_data: TrainingData) -> None:
        self.model = model
        self.training_data = training_data
        keep_freed_memory()

    @property
    def device_kind(self) -> str:
        """The kind of device that trains: another one may give other last bits."""
        return devices.kind(self.model.vector.device)

    def submit(self, client: int, round_: int, task: TrainingTask, poisoned: bool = False) -> Pending:
        """Start K local steps of the client, on its data or on a poisoned copy of it."""
        return self.start(self.training_data.job(client, round_, task, poisoned))

    @abstractmethod
    def start(self, job: Job) -> Pending:
        """Take a job on."""

    def batch(self, client: int, round_: int) -> OwnBatch:
        """Some of the client's own data, another batch in every round."""
        return self.training_data.batch(self.model, client, round_)

    def evaluate(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """The marks of all exams, in their order. A model that several clients have is tested once."""
        places_of: dict[int, list[int]] = {}
        for place, job in enumerate(jobs):
            places_of.setdefault(id(job.w), []).append(place)
        alone = [places[0] for places in places_of.values() if len(places) == 1]
        results = dict(zip(alone, self.evaluate_many([jobs[place] for place in alone]), strict=True))
        for places in places_of.values():
            if len(places) > 1:
                results.update(
                    zip(places, self._evaluate_once([jobs[place] for place in places]), strict=True)
                )
        return [results[place] for place in range(len(jobs))]

    def _evaluate_once(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """The marks of exams that have the same model."""
        tests, whole = self.training_data.personal_tests, self.training_data.global_test
        answers = Predictions.of(self.model, jobs[0].w, whole)
        everything = answers.on(whole)
        return [
            EvalResult(answers.on(tests[job.client]), everything if job.is_global else None) for job in jobs
        ]

    def evaluate_many(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """The marks of exams whose models all differ."""
        return [self.training_data.evaluate(self.model, job) for job in jobs]

    def close(self) -> None:  # noqa: B027 (most have nothing to stop)
        """Stop what was started."""
