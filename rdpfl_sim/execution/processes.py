"""Training in worker processes of this machine.

The data lies in shared memory, once for all. A worker that is killed is replaced, and its jobs are done
again: a job has all its inputs, so that its result is the same.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

import torch.multiprocessing  # lets tensors travel through shared memory  # noqa: F401
from torch import Tensor

from rdpfl_sim.errors import RunError
from rdpfl_sim.execution.executor import Executor
from rdpfl_sim.execution.jobs import Exam, Job, Marks, Materials
from rdpfl_sim.execution.luggage import Luggage, Worker
from rdpfl_sim.execution.workers import Workers, need_processors, num_cores
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import Trained

CONTEXT = multiprocessing.get_context("forkserver")

MAX_LOSSES = 3
"""If so many pools of workers break down without a single result between them, there is no hope."""

T = TypeVar("T")


class Errand(Generic[T]):
    """Something that a worker was asked to do."""

    def __init__(self, executor: Processes, task: str, subject: Job | Exam) -> None:
        self.executor = executor
        self.task = task
        # As bytes: the pool would send every tensor through a file of its own.
        self.subject = pickle.dumps(subject, pickle.HIGHEST_PROTOCOL)
        self.begin()

    def begin(self) -> None:
        """Ask for it, for the first time or again."""
        self.pool = self.executor.pool()
        self.future: Future[bytes] = self.pool.submit(_do, self.task, self.subject)

    def result(self) -> T:
        """The outcome; if the worker has died on the way, that of another one."""
        while True:
            try:
                outcome: T = pickle.loads(self.future.result())  # written by a process of our own
            except BrokenProcessPool:
                self.executor.replace(self.pool)
                self.begin()
            else:
                self.executor.num_losses = 0
                return outcome


class Processes(Executor):
    """A process per core, each with one job at a time: for models that spend their time in Python."""

    def __init__(self, model: FlatModel, materials: Materials, *, workers: Workers = None) -> None:
        need_processors(model)
        super().__init__(model, materials)
        self.num_workers = workers or num_cores()
        self.num_losses = 0
        self._pool: ProcessPoolExecutor | None = None

    def start(self, job: Job) -> Errand[Trained]:
        """Begin as soon as a worker is free."""
        return Errand(self, "train", job)

    def examine(self, exams: Sequence[Exam]) -> list[Marks]:
        """Each exam in one of the workers."""
        errands = [Errand[Marks](self, "examine", exam) for exam in exams]
        return [errand.result() for errand in errands]

    def pool(self) -> ProcessPoolExecutor:
        """The workers; they are started when they are first needed."""
        if self._pool is None:
            CONTEXT.set_forkserver_preload(["rdpfl_sim.execution.luggage"])  # torch is loaded once for all
            luggage, sets = Luggage.packed(self.model, self.materials)
            shared = [tensor.share_memory_() for tensor in sets]  # type: ignore[no-untyped-call]
            self._pool = ProcessPoolExecutor(self.num_workers, CONTEXT, _move_in, (luggage, shared))
        return self._pool

    def replace(self, broken: ProcessPoolExecutor) -> None:
        """Give up a pool in which a worker has died, unless somebody else has noticed before."""
        if broken is not self._pool:
            return
        self.num_losses += 1
        if self.num_losses >= MAX_LOSSES:
            raise RunError(
                "the worker processes are killed again and again, by the system if memory is short: "
                "fewer need less (execution.executor.workers)"
            )
        self.close()

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


_worker: Worker | None = None
"""In a worker process: who works there."""


def _move_in(luggage: Luggage, sets: Sequence[Tensor]) -> None:
    global _worker  # a pool's functions have no other way to find what its processes began with
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns this one
    _worker = Worker(luggage, sets)


def _do(task: str, subject: bytes) -> bytes:
    outcome: Any = getattr(_worker, task)(pickle.loads(subject))
    return pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
