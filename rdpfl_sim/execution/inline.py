"""Training in this process, one job at a time."""

from __future__ import annotations

from dataclasses import dataclass

from rdpfl_sim.execution.executor import Executor, executor
from rdpfl_sim.execution.jobs import Job
from rdpfl_sim.learning.training import TrainingResult


@dataclass(frozen=True)
class LazyJob:
    """A job that runs when its result is requested."""

    executor: Executor
    job: Job

    def result(self) -> TrainingResult:
        """Run the job and return its result."""
        return self.executor.training_data.train(self.executor.model, self.job)


@executor
class Inline(Executor):
    """One job at a time, in this process, without startup or copies."""

    def submit_job(self, job: Job) -> LazyJob:
        """Defer the job until its result is requested."""
        return LazyJob(self, job)
