"""The interface of executors, which is also the simplest one: every job in this process, when it is needed.

Simulated time never depends on the executor. Results differ in the last bits at most.
"""

from __future__ import annotations

from collections.abc import Sequence

from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.execution import devices
from rdpfl_sim.execution.allocation import keep_freed_memory
from rdpfl_sim.execution.jobs import EvalJob, EvalResult, TrainingData
from rdpfl_sim.execution.round_jobs import PendingJob, RoundSteps
from rdpfl_sim.learning.evaluation import Predictions
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.methods.base import Method
from rdpfl_sim.world.jobs import RoundJob

EXECUTORS = Registry("executor", Facts)
executor = EXECUTORS.register


class Executor:
    """Computes the round jobs of one run, and evaluates models.

    Derived classes compute jobs elsewhere or in batches. Threads, processes and connections are started when
    the first job needs them.
    """

    warning: str | None = None
    """Why this executor is not what the scenario asks for, if it is not."""

    def __init__(self, model: FlatModel, training_data: TrainingData, method: Method) -> None:
        self.model = model
        self.training_data = training_data
        self.steps = RoundSteps(model, training_data, method)
        keep_freed_memory()

    @property
    def device_kind(self) -> str:
        """The kind of device that trains. The last bits of results depend on it."""
        return devices.kind(self.model.vector.device)

    def submit(self, job: RoundJob) -> PendingJob:
        """Accept a job. It is computed at the latest when its results are requested."""
        return PendingJob(job, self)

    def compute_update(self, job: PendingJob) -> None:
        """Compute the update of a job that has been requested."""
        self.steps.update([job])

    def compute_result(self, job: PendingJob) -> None:
        """Compute the result of a job that has been requested."""
        self.steps.train(job)

    def evaluate(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Return the results of all jobs, in order. A model that several clients share is evaluated once."""
        indices_of_model: dict[int, list[int]] = {}
        for i, job in enumerate(jobs):
            indices_of_model.setdefault(job.w.data_ptr(), []).append(i)
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

    def close(self) -> None:
        """Stop threads, processes and connections that were started."""
