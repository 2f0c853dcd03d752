"""The interface of executors.

Simulated time never depends on the executor. Results differ in the last bits at most.
"""

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
    """A submitted job. It may run immediately, later, or on another machine."""

    def result(self) -> TrainingResult:
        """Return the result; wait for it if necessary."""


class Executor(ABC):
    """Trains and evaluates models.

    Threads, processes and connections are started when the first job needs them, also after `close`.
    """

    defers_updates = False
    """Whether updates are deferred and computed for many clients at once."""

    def __init__(self, model: FlatModel, training_data: TrainingData) -> None:
        self.model = model
        self.training_data = training_data
        keep_freed_memory()

    @property
    def device_kind(self) -> str:
        """The kind of device that trains. The last bits of results depend on it."""
        return devices.kind(self.model.vector.device)

    def submit(self, client: int, round_: int, task: TrainingTask, poisoned: bool = False) -> Pending:
        """Submit K local steps of the client, on its data or on a poisoned copy."""
        return self.submit_job(self.training_data.job(client, round_, task, poisoned))

    @abstractmethod
    def submit_job(self, job: Job) -> Pending:
        """Submit a job."""

    def batch(self, client: int, round_: int) -> OwnBatch:
        """Return a batch of the client's own data, a different one in every round."""
        return self.training_data.batch(self.model, client, round_)

    def evaluate(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Return the results of all jobs, in order. A model that several clients share is evaluated once."""
        indices_of_model: dict[int, list[int]] = {}
        for i, job in enumerate(jobs):
            indices_of_model.setdefault(id(job.w), []).append(i)
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
            EvalResult(predictions.on(personal_tests[job.client]), on_global if job.is_global else None)
            for job in jobs
        ]

    def evaluate_many(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Return the results of jobs with different models."""
        return [self.training_data.evaluate(self.model, job) for job in jobs]

    def close(self) -> None:  # noqa: B027 (most executors have nothing to stop)
        """Stop threads, processes and connections that were started."""
