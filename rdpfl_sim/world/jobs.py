"""Jobs that clients submit to an executor, and their results.

A `RoundJob` is all the computation of one client between two sends: update the model with the messages of the
last round, train, and build the next payload. It is submitted when a round ends, and the first one at the
start. All its inputs are available then, so an executor may compute it immediately, in a thread, on another
machine, or in a batch with the jobs of other clients. No other part of the program depends on when that
happens.

By default small models use the executor `stacked`, which computes all pending jobs when the first result is
needed (execution/auto.py, execution/stacked.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rdpfl_sim.methods.base import Payload, State, Trained
from rdpfl_sim.methods.batching import Received, Updated


class JobResult(NamedTuple):
    """The result of a job whose local training is done."""

    state: State
    """The method's state after the payload was built."""
    trained: Trained
    payload: Payload


class Job(Protocol):
    """A submitted job. Reading a pending result waits for it."""

    @property
    def trains(self) -> bool:
        """Whether it includes local training."""

    @property
    def updated(self) -> Updated:
        """The state after the update, and the method's diagnostics of the last finished round."""

    @property
    def result(self) -> JobResult:
        """The result of local training and the payload to send."""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that needs no computation: an initial state, a stopped client, or a job from a checkpoint."""

    updated: Updated
    known_result: JobResult | None = None

    @property
    def trains(self) -> bool:
        """Whether it includes local training."""
        return self.known_result is not None

    @property
    def result(self) -> JobResult:
        """The result of local training, which must be available."""
        assert self.known_result is not None, "this job does not train"
        return self.known_result


class RoundJob(NamedTuple):
    """The computation of one client from the end of its last round to its next payload.

    Without messages (None), the client continues from the state of the previous job: at the start and after a
    crash. After a crash, the pending update is kept and the pending training is discarded.
    """

    client: int
    round: int
    previous: Job
    messages: Sequence[Received] | None
    """The messages used in the last round, `round` - 1, or None without a pending update."""
    degree: int
    """The client's number of neighbours when the job is submitted."""
    poisoned: bool = False
    """Whether to train on poisoned data."""
    trains: bool = True
    """Whether to train after the update; False after the last round."""


class JobExecutor(Protocol):
    """Computes jobs."""

    def submit(self, job: RoundJob) -> Job:
        """Accept a job; compute it now or later."""
