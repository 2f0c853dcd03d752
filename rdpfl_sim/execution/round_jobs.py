"""Round jobs inside an executor: what has been computed of a job, and the steps that compute it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rdpfl_sim.errors import note_client_round
from rdpfl_sim.execution.jobs import TrainingData, TrainingJob
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import OwnBatch, TrainingResult
from rdpfl_sim.methods.base import ClientView, Method, Trained
from rdpfl_sim.methods.batching import Updated, UpdateInput, update_in_batches
from rdpfl_sim.methods.payload import Payload
from rdpfl_sim.world.jobs import FinishedJob, JobResult, RoundJob


class JobComputer(Protocol):
    """Computes the two parts of a job when they are requested."""

    def compute_update(self, job: PendingJob) -> None:
        """Set `known_update`."""

    def compute_result(self, job: PendingJob) -> None:
        """Set `known_result`."""


class PendingJob:
    """A submitted round job, and what has been computed of it.

    It does not refer to the previous job; otherwise no job would ever be released.
    """

    def __init__(self, job: RoundJob, computer: JobComputer) -> None:
        self.computer = computer
        self.client = job.client
        self.round = job.round
        self.degree = job.degree
        self.poisoned = job.poisoned
        self.trains = job.trains
        self.exchange = job.exchange
        """The messages of an update that has not been computed."""
        self.before = None if job.exchange is None else job.previous.result
        """The result of the previous job, until the update is computed."""
        self.known_update = job.previous.updated if job.exchange is None else None
        self.known_result: JobResult | None = None

    @property
    def updated(self) -> Updated:
        """The state after the update, and what the method reports about the last finished round."""
        if self.known_update is None:
            self.computer.compute_update(self)
        assert self.known_update is not None
        return self.known_update

    @property
    def result(self) -> JobResult:
        """The outcome of the local training, and what to send."""
        assert self.trains, "this job does not train"
        if self.known_result is None:
            self.computer.compute_result(self)
        assert self.known_result is not None, "the job was replaced by a later job of its client"
        return self.known_result

    def to_value(self) -> FinishedJob:
        """Return what has been computed, the update at least, for a checkpoint."""
        return FinishedJob(self.updated, self.known_result)


@dataclass(frozen=True)
class RoundSteps:
    """Computes the steps of round jobs with one model, which no other thread uses."""

    model: FlatModel
    training_data: TrainingData
    method: Method

    def update(self, jobs: Sequence[PendingJob]) -> None:
        """Compute the updates of jobs, in batches, and release the messages that they use."""
        inputs = [self._update_input(job) for job in jobs]
        for job, updated in zip(jobs, update_in_batches(self.method, inputs), strict=True):
            job.known_update, job.exchange, job.before = updated, None, None

    def _update_input(self, job: PendingJob) -> UpdateInput:
        exchange, before = job.exchange, job.before
        assert exchange is not None
        assert before is not None
        client = ClientView(job.client, exchange.round, exchange.degree, self)
        return UpdateInput(before.state, before.trained, exchange.messages, client, exchange.inspects)

    def training(self, job: PendingJob) -> TrainingJob:
        """Return the local training of a job whose update has been computed."""
        task = self.method.training(job.updated.state)
        return self.training_data.job(job.client, job.round, task, job.poisoned)

    def train(self, job: PendingJob) -> None:
        """Train, and make the payload."""
        self.finish(job, self.training_data.train(self.model, self.training(job)))

    def finish(self, job: PendingJob, result: TrainingResult) -> None:
        """Set the result of a job from that of its local training; it includes the payload."""
        trained, client = _row(result), ClientView(job.client, job.round, job.degree, self)
        try:
            state, outgoing = self.method.payload(job.updated.state, trained, [client])
        except Exception as error:
            note_client_round(error, job.client, job.round)
            raise
        payload = Payload(outgoing.vectors[0], None if outgoing.masks is None else outgoing.masks[0])
        job.known_result = JobResult(state, trained, payload, result.loss)

    def seed(self, purpose: str, client: int, round_: int) -> int:
        """Return a seed for a purpose of a client in a round."""
        return self.training_data.streams.key(purpose, client, round_)

    def batch(self, client: int, round_: int) -> OwnBatch:
        """Return a batch of a client's own data, a different one in every round."""
        return self.training_data.batch(self.model, client, round_)


def _row(result: TrainingResult) -> Trained:
    """Return the result of one client's training as a batch of one row."""
    return Trained(
        result.w.unsqueeze(0),
        (result.num_steps,),
        None if result.second_w is None else result.second_w.unsqueeze(0),
        None if result.direction is None else result.direction.unsqueeze(0),
    )
