"""Training in threads of this process. Data is not copied, and torch releases the global interpreter lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from typing import TypeVar

import torch

from rdpfl_sim.execution.executor import Executor, executor
from rdpfl_sim.execution.jobs import EvalJob, EvalResult, Job, TrainingData
from rdpfl_sim.execution.num_workers import Workers, num_cores
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import TrainingResult

T = TypeVar("T")


@executor
class Threads(Executor):
    """A thread pool, by default with one thread per core, for large models on one machine."""

    def __init__(self, model: FlatModel, training_data: TrainingData, *, workers: Workers = None) -> None:
        super().__init__(model, training_data)
        self.num_workers = workers or num_cores()
        self._local = threading.local()
        self._pool: ThreadPoolExecutor | None = None

    def submit_job(self, job: Job) -> Future[TrainingResult]:
        """Start the job as soon as a thread is free."""
        return self._run(lambda model: self.training_data.train(model, job))

    def evaluate_many(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Distribute the jobs over the threads and return their results."""
        if len(jobs) == 1:  # all threads may be busy with jobs whose results are needed later
            return super().evaluate_many(jobs)
        futures = [
            self._run(lambda model, job=job: self.training_data.evaluate(model, job))  # type: ignore[misc]
            for job in jobs
        ]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Wait for running jobs and cancel the others."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _run(self, compute: Callable[[FlatModel], T]) -> Future[T]:
        if self._pool is None:
            # torch stores its number of threads per thread.
            self._pool = ThreadPoolExecutor(
                self.num_workers, "training", torch.set_num_threads, (torch.get_num_threads(),)
            )
        return self._pool.submit(lambda: compute(self._model()))

    def _model(self) -> FlatModel:
        """Return the model of the current thread."""
        if not hasattr(self._local, "model"):
            self._local.model = deepcopy(self.model)
        model: FlatModel = self._local.model
        return model
