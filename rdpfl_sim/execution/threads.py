"""Training in threads of this process: nothing is copied, and torch does not hold the others up."""

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
    """A thread per core, each with one client's job at a time: for large models on one machine."""

    def __init__(self, model: FlatModel, training_data: TrainingData, *, workers: Workers = None) -> None:
        super().__init__(model, training_data)
        self.num_workers = workers or num_cores()
        self._own = threading.local()
        self._pool: ThreadPoolExecutor | None = None

    def start(self, job: Job) -> Future[TrainingResult]:
        """Begin as soon as a thread is free."""
        return self._run(lambda model: self.training_data.train(model, job))

    def evaluate_many(self, eval_jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Each exam in one of the threads."""
        if len(eval_jobs) == 1:  # all threads may be busy with what is due later
            return super().evaluate_many(eval_jobs)
        eval_result = [
            self._run(lambda model, eval_job=eval_job: self.training_data.evaluate(model, eval_job))  # type: ignore[misc]
            for eval_job in eval_jobs
        ]
        return [future.result() for future in eval_result]

    def close(self) -> None:
        """Wait for what runs, and forget what has not begun."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _run(self, compute: Callable[[FlatModel], T]) -> Future[T]:
        if self._pool is None:
            # The number of torch's threads is each thread's own affair.
            self._pool = ThreadPoolExecutor(
                self.num_workers, "training", torch.set_num_threads, (torch.get_num_threads(),)
            )
        return self._pool.submit(lambda: compute(self._model()))

    def _model(self) -> FlatModel:
        """The model of the present thread."""
        if not hasattr(self._own, "model"):
            self._own.model = deepcopy(self.model)
        model: FlatModel = self._own.model
        return model
