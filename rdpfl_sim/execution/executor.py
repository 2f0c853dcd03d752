"""Executors compute the jobs of clients. The base class computes each job in this process, when it is needed.

A job has two parts. The update is needed when the client is evaluated, stops, or ends its next training. The
result of the training is needed when the training ends. Derived classes compute them earlier, elsewhere, or
for many clients together. Simulated time never depends on the executor. Results differ in the last bits at
most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import note_client_round
from rdpfl_sim.execution import devices
from rdpfl_sim.execution.allocation import keep_freed_memory
from rdpfl_sim.execution.training_data import EvalJob, EvalResult, TrainingData, TrainingJob
from rdpfl_sim.learning.evaluation import Predictions
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import OwnBatch
from rdpfl_sim.maths.inputs import call_read_only
from rdpfl_sim.methods.base import ClientView, Method, Trained
from rdpfl_sim.methods.batching import Updated, UpdateInput, update_in_batches
from rdpfl_sim.methods.payload import Payload
from rdpfl_sim.world.jobs import FinishedJob, JobResult, RoundJob

EXECUTORS = Registry("executor", Facts)
executor = EXECUTORS.register


class PendingJob:
    """A submitted round job and its results so far.

    It does not refer to the previous job; otherwise no job would ever be freed.
    """

    __slots__ = (
        *("client", "degree", "executor", "known_result", "known_update", "messages"),
        *("poisoned", "previous_result", "round", "trains", "__weakref__"),
    )

    def __init__(self, job: RoundJob, executor: Executor) -> None:
        self.executor = executor
        self.client = job.client
        self.round = job.round
        self.degree = job.degree
        self.poisoned = job.poisoned
        self.trains = job.trains
        self.messages = job.messages
        """The messages of the pending update; None once it is computed."""
        self.previous_result = None if job.messages is None else job.previous.result
        """The result of the previous job, until the update is computed."""
        self.known_update = job.previous.updated if job.messages is None else None
        self.known_result: JobResult | None = None

    @property
    def updated(self) -> Updated:
        """The state after the update, and the method's diagnostics of the last finished round."""
        if self.known_update is None:
            self.executor.compute_update(self)
        assert self.known_update is not None
        return self.known_update

    @property
    def result(self) -> JobResult:
        """The result of local training and the payload to send."""
        assert self.trains, "this job does not train"
        if self.known_result is None:
            self.executor.compute_result(self)
        assert self.known_result is not None, "the job was replaced by a later job of its client"
        return self.known_result

    def to_value(self) -> FinishedJob:
        """Return the results so far for a checkpoint; compute the update if it is pending."""
        return FinishedJob(self.updated, self.known_result)


@dataclass(frozen=True)
class RoundComputation:
    """Computes the parts of round jobs with one model, which no other thread uses."""

    model: FlatModel
    training_data: TrainingData
    method: Method
    with_message_stats: bool
    """Whether to compute statistics of single messages."""

    def update(self, jobs: Sequence[PendingJob]) -> None:
        """Compute the updates of jobs in batches, and release the messages that they use."""
        inputs = [self._update_input(job) for job in jobs]
        for job, updated in zip(
            jobs, update_in_batches(self.method, inputs, self.with_message_stats), strict=True
        ):
            job.known_update, job.messages, job.previous_result = updated, None, None

    def _update_input(self, job: PendingJob) -> UpdateInput:
        messages, previous = job.messages, job.previous_result
        assert messages is not None
        assert previous is not None
        client = ClientView(job.client, job.round - 1, job.degree, self)  # the round that has finished
        return UpdateInput(previous.state, previous.trained, messages, client)

    def training_job(self, job: PendingJob) -> TrainingJob:
        """Return the local training of a job. If its update is pending, compute it first."""
        task = call_read_only(self.method.training, job.updated.state)
        return self.training_data.job(job.client, job.round, task, job.poisoned)

    def train(self, job: PendingJob) -> None:
        """Train and build the payload."""
        self.finish(job, self.training_data.train(self.model, self.training_job(job)))

    def finish(self, job: PendingJob, trained: Trained) -> None:
        """Build the payload from the result of the training, and set the result of the job."""
        client = ClientView(job.client, job.round, job.degree, self)
        try:
            state, outgoing = call_read_only(self.method.payload, job.updated.state, trained, [client])
        except Exception as error:
            note_client_round(error, job.client, job.round)
            raise
        payload = Payload(outgoing.vectors[0], None if outgoing.masks is None else outgoing.masks[0])
        job.known_result = JobResult(state, trained, payload)

    def seed(self, purpose: str, client: int, round_: int) -> int:
        """Return the seed for one purpose, client and round."""
        return self.training_data.streams.key(purpose, client, round_)

    def batch(self, client: int, round_: int) -> OwnBatch:
        """Return a batch of a client's own data, a different one in every round."""
        return self.training_data.batch(self.model, client, round_)


class Executor:
    """Computes the round jobs of one run, and evaluates models.

    Derived classes compute jobs elsewhere or in batches. Threads, processes and connections are started when
    the first job needs them.
    """

    warning: str | None = None
    """Reason for using a different executor than configured, or None."""

    def __init__(self, computation: RoundComputation) -> None:
        self.computation = computation
        self.model = computation.model
        self.training_data = computation.training_data
        keep_freed_memory()

    @property
    def device_kind(self) -> str:
        """The GPU model used for training, or `cpu`. The last bits of results depend on it."""
        return devices.kind(self.model.vector.device)

    def submit(self, job: RoundJob) -> PendingJob:
        """Accept a job, which is computed at the latest when its results are requested."""
        return PendingJob(job, self)

    def compute_update(self, job: PendingJob) -> None:
        """Set `known_update` of this job. Derived classes may compute other pending jobs too."""
        self.computation.update([job])

    def compute_result(self, job: PendingJob) -> None:
        """Set `known_result` of this job. Derived classes may compute other pending jobs too."""
        self.computation.train(job)

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
