"""Run jobs in threads of this process. Data is not copied, and torch releases the global interpreter lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import TypeVar

import torch
from typing_extensions import override

from rdpfl_sim.execution.devices import Workers, num_cores
from rdpfl_sim.execution.executor import EvalJob, EvalResult, Executor, PendingJob, RoundComputation, executor
from rdpfl_sim.world.jobs import RoundJob

T = TypeVar("T")


class ThreadJob(PendingJob):
    """A job that runs in a thread. The first thread that needs the update computes it.

    This way, an evaluation, which needs only the update, does not wait for local training to finish.
    """

    def __init__(self, job: RoundJob, executor: Executor) -> None:
        super().__init__(job, executor)
        self.lock = threading.Lock()
        self.training: Future[None] | None = None

    def update(self, computation: RoundComputation) -> None:
        """Compute the update, unless another thread has done so."""
        with self.lock:
            if self.known_update is None:
                computation.update([self])

    def run(self, computation: RoundComputation) -> None:
        """Compute the update and the result."""
        self.update(computation)
        computation.train(self)


@executor
class Threads(Executor):
    """A thread pool, by default with one thread per core, for large models on one machine."""

    def __init__(self, computation: RoundComputation, *, workers: Workers = None) -> None:
        super().__init__(computation)
        self.num_workers = workers or num_cores()
        self._local = threading.local()
        self._pool: ThreadPoolExecutor | None = None

    @override
    def submit(self, job: RoundJob) -> ThreadJob:
        """Start the job as soon as a thread is free."""
        submitted = ThreadJob(job, self)
        if job.trains:
            submitted.training = self._run(submitted.run)
        return submitted

    @override
    def compute_update(self, job: PendingJob) -> None:
        """Compute the update in the calling thread."""
        assert isinstance(job, ThreadJob)
        job.update(self.computation)

    @override
    def compute_result(self, job: PendingJob) -> None:
        """Wait until the job's thread has finished training."""
        assert isinstance(job, ThreadJob)
        assert job.training is not None
        job.training.result()

    @override
    def evaluate_many(self, jobs: Sequence[EvalJob]) -> list[EvalResult]:
        """Distribute the jobs over the threads and return their results."""
        if len(jobs) == 1:  # evaluate here: all threads may be busy with less urgent jobs
            return super().evaluate_many(jobs)
        futures = [
            self._run(lambda own, job=job: self.training_data.evaluate(own.model, job))  # type: ignore[misc]
            for job in jobs
        ]
        return [future.result() for future in futures]

    @override
    def close(self) -> None:
        """Wait for running jobs and cancel the others."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _run(self, compute: Callable[[RoundComputation], T]) -> Future[T]:
        if self._pool is None:
            # torch's thread count is a per-thread setting, so it is set in every worker thread.
            self._pool = ThreadPoolExecutor(
                self.num_workers, "training", torch.set_num_threads, (torch.get_num_threads(),)
            )
        return self._pool.submit(lambda: compute(self._computation_of_thread()))

    def _computation_of_thread(self) -> RoundComputation:
        """Return the computation of the current thread, which has its own copy of the model."""
        if not hasattr(self._local, "computation"):
            self._local.computation = replace(self.computation, model=deepcopy(self.model))
        computation: RoundComputation = self._local.computation
        return computation
