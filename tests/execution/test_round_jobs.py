"""Round jobs: the results of each step, its time, and the release of memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from threading import Event
from typing import Any, cast

import pytest
import torch

from rdpfl_sim.execution.executor import Executor, RoundComputation
from rdpfl_sim.execution.stacked import Stacked
from rdpfl_sim.execution.threads import Threads
from rdpfl_sim.methods.base import ClientView, Diagnostics, Inbox, Payload, RunInfo, State, Trained
from rdpfl_sim.methods.batching import Received, Updated
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.world.jobs import FinishedJob, Job, RoundJob
from tests.support import FakeTrainingData, round_job, small_scenario


class Counting(Direct):
    """w <- w - (u + mean of the messages); records the clients of each batch of updates."""

    def __init__(self) -> None:
        super().__init__(RunInfo(rounds=5), lambda_=1.0)
        self.batches: list[list[int]] = []

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[State, Diagnostics]:
        self.batches.append([client.id for client in clients])
        return super().update(state, trained, inbox, clients)


def executor(method: Direct | None = None) -> Executor:
    data = cast(Any, FakeTrainingData())
    return Executor(RoundComputation(cast(Any, None), data, method or Counting(), with_message_stats=True))


def start(client: int = 0, round_: int = 1) -> RoundJob:
    return round_job(client, round_, State(torch.zeros(1, 2)))


def after(previous: Job, client: int = 0, round_: int = 2, trains: bool = True) -> RoundJob:
    """Return the job after a round in which the client received (10, 10)."""
    received = Received(Payload(torch.full((2,), 10.0)), 1.0, 2)
    return RoundJob(client, round_, previous, [received], degree=2, trains=trains)


def test_first_job_trains_from_the_initial_state_and_sends_the_direction() -> None:
    job = executor().submit(start(client=3))
    assert job.updated.state.w.tolist() == [[0.0, 0.0]]
    assert job.updated.diagnostics == {}
    assert job.result.trained.w.tolist() == [[-4.0, -4.0]]
    assert job.result.payload.vector.tolist() == [4.0, 4.0]
    assert job.result.trained.num_steps == (1,)


def test_job_applies_messages_then_trains() -> None:
    there = executor()
    job = there.submit(after(there_result := there.submit(start())))
    assert there_result.result.payload.vector.tolist() == [1.0, 1.0]
    assert job.updated.state.w.tolist() == [[-11.0, -11.0]]  # 0 - (1 + 10)
    assert job.updated.diagnostics["u_norm"] == pytest.approx(2**0.5)
    assert job.updated.message_stats is not None
    assert job.updated.message_stats.weight == [1.0]
    assert job.result.trained.w.tolist() == [[-12.0, -12.0]]


def test_nothing_is_computed_before_it_is_requested() -> None:
    method = Counting()
    there = executor(method)
    first = there.submit(start())
    assert first.result
    job = there.submit(after(first))
    assert method.batches == []
    assert job.updated
    assert job.known_result is None
    assert method.batches == [[0]]
    assert job.result
    assert method.batches == [[0]], "the update is computed once"


def test_job_without_exchange_continues_from_the_update_of_the_previous_one() -> None:
    there = executor()
    first = there.submit(start())
    assert first.result
    crashed = there.submit(after(first))
    again = there.submit(RoundJob(0, 2, crashed, None, degree=2))
    assert again.updated is crashed.updated
    assert again.result.trained.w.tolist() == [[-12.0, -12.0]]


def test_job_after_the_last_round_has_no_result() -> None:
    there = executor()
    first = there.submit(start())
    assert first.result
    last = there.submit(after(first, trains=False))
    assert last.updated.state.w.tolist() == [[-11.0, -11.0]]
    with pytest.raises(AssertionError, match="does not train"):
        _ = last.result


def test_job_releases_messages_and_previous_jobs_once_the_update_is_computed() -> None:
    there = executor()
    job = first = there.submit(start())
    old = weakref.ref(first)
    for round_ in range(2, 5):
        assert job.result
        job = there.submit(after(job, round_=round_))
    del first
    gc.collect()
    assert old() is None
    assert job.updated
    assert (job.messages, job.previous_result) == (None, None)


def test_value_for_a_checkpoint_has_the_update_and_no_training_that_was_not_computed() -> None:
    there = executor()
    first = there.submit(start())
    assert first.to_value() == FinishedJob(first.updated, None)
    result = first.result
    assert first.to_value() == FinishedJob(first.updated, result)


def test_finished_job_without_a_result_does_not_train() -> None:
    job = FinishedJob(Updated(State(torch.zeros(1, 2))))
    assert not job.trains
    with pytest.raises(AssertionError, match="does not train"):
        _ = job.result


def experiment() -> Experiment:
    return Experiment(small_scenario(method={"name": "direct", "lambda": 1.0}))


def test_stacked_executor_computes_all_pending_updates_and_then_all_trainings() -> None:
    built = experiment()
    method = Counting()
    there = Stacked(replace(built.computation, method=method))
    firsts = [there.submit(round_job(i, 1, built.initial_state(i))) for i in range(3)]
    assert firsts[1].result
    assert all(job.known_result is not None for job in firsts)

    def received(job: Job) -> list[Received]:
        return [Received(job.result.payload, 1.0, 2)]

    jobs = [there.submit(RoundJob(i, 2, job, received(job), degree=2)) for i, job in enumerate(firsts)]
    assert jobs[2].updated
    assert method.batches == [[0, 1, 2]]
    assert [job.known_update is not None for job in jobs] == [True] * 3
    assert [job.known_result for job in jobs] == [None] * 3
    assert jobs[0].result
    assert all(job.known_result is not None for job in jobs)


def test_stacked_executor_drops_the_job_of_a_client_that_submits_another() -> None:
    built = experiment()
    there = Stacked(built.computation)
    dropped = there.submit(round_job(0, 1, built.initial_state(0)))
    assert there.submit(round_job(0, 1, built.initial_state(0))).result
    assert dropped.known_result is None


def test_update_does_not_wait_for_the_threads_that_train() -> None:
    built = experiment()
    go_on = Event()
    train = built.training_data.train

    class Waiting(type(built.training_data)):  # type: ignore[misc]
        def train(self, model: Any, job: Any) -> Any:
            assert go_on.wait(60)
            return train(model, job)

    data = Waiting(**vars(built.training_data))
    with closing(Threads(replace(built.computation, training_data=data), workers=1)) as there:
        first = there.submit(round_job(0, 1, built.initial_state(0)))
        second = there.submit(round_job(1, 1, built.initial_state(1)))
        assert second.updated.state.w.shape == (1, built.model.num_parameters)
        assert (first.known_result, second.known_result) == (None, None)
        go_on.set()
        assert second.result.trained.num_steps[0] > 0


def test_result_of_a_stacked_job_does_not_keep_the_other_models_in_memory() -> None:
    built = experiment()
    there = Stacked(built.computation)
    jobs = [there.submit(round_job(i, 1, built.initial_state(i))) for i in range(3)]
    for trained in (job.result.trained for job in jobs):
        for tensor in (trained.w, trained.direction):
            assert tensor is not None
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
