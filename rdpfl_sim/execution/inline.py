"""Training in this process, one job after the other, each when its result is due."""

from __future__ import annotations

from dataclasses import dataclass

from rdpfl_sim.execution.executor import Executor, executor
from rdpfl_sim.execution.jobs import Job
from rdpfl_sim.learning.training import TrainingResult


@dataclass(frozen=True)
class LazyJob:
    """A job that is done when somebody asks for its result."""

    executor: Executor
    job: Job

    def result(self) -> TrainingResult:
        """Train now."""
        return self.executor.training_data.train(self.executor.model, self.job)


@executor
class Inline(Executor):
    """One job after the other, in this process: nothing to start, nothing to copy."""

    def start(self, job: Job) -> LazyJob:
        """Put it off until its result is wanted."""
        return LazyJob(self, job)
