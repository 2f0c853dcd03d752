"""All executors do the same work: what a run is does not depend on where its training happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import nn

from rdpfl_sim import simulate
from rdpfl_sim.execution.choice import auto, stacked
from rdpfl_sim.execution.inline import Inline
from rdpfl_sim.execution.jobs import EvalJob
from rdpfl_sim.execution.ray_actors import MAX_RETRIES, RayActors
from rdpfl_sim.execution.stacked import Stacked
from rdpfl_sim.execution.threads import Threads
from rdpfl_sim.learning.models import FlatModel, cnn, mlp
from rdpfl_sim.methods.base import TrainingTask
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.simulation import Result
from rdpfl_sim.system.ray_session import RaySession
from tests.killing import ray_processes
from tests.runs import lived
from tests.support import small_scenario

with_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
ELSEWHERE = ["threads", pytest.param("ray", marks=with_ray)]

ATTACKED = {
    "training": {"batch_size": 16, "local_epochs": 2, "momentum": 0.5},
    "adversary": [{"attack": "label_flip", "fraction": 0.4}],
    "network": {"latency": {"name": "exponential", "mean_s": 0.3}},
    "timing": {
        "compute": {"name": "uniform", "low_s": 0.5, "high_s": 2.0},
        "wait": "none",
        "staleness": "keep",
    },
}
IMAGES = {
    "data": {"name": "synthetic", "shape": [3, 8, 8], "num_classes": 3, "num_train": 200, "num_test": 40},
    "model": {"name": "cnn", "width": 4, "hidden": 8},
    "rounds": 2,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One small cluster for all tests that need one: to start it takes seconds."""
    if find_spec("ray") is None:
        yield
        return
    session = RaySession(num_cpus=2, address=None)
    session.connect()
    yield
    session.close()


def on(executor: str | dict[str, Any], **changes: Any) -> Scenario:
    return small_scenario(**changes, execution={"executor": executor})


def close(one: Result, other: Result) -> bool:
    return all(
        torch.allclose(v, w, rtol=1e-4, atol=1e-6) for v, w in zip(one.models, other.models, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("executor", ELSEWHERE)
@pytest.mark.usefixtures("cluster")
def test_a_run_has_the_same_digest_wherever_it_is_trained(executor: str) -> None:
    for changes in (ATTACKED, IMAGES):
        expected = simulate(on("inline", **changes)).summary["digest"]
        there = {"name": executor, "workers": 2}
        assert simulate(on(there, **changes)).summary["digest"] == expected


@pytest.mark.parametrize("method", ["rdpfl", "ditto", "dispfl", "dfedavgm", "fedper"])
def test_stacked_training_is_that_of_one_client_after_the_other_up_to_rounding(method: str) -> None:
    scenario = {**ATTACKED, "method": method, "model": {"name": "mlp", "hidden": [6]}}
    one, other = simulate(on("inline", **scenario)), simulate(on("stacked", **scenario))
    assert close(one, other)
    assert other.summary["messages"] == one.summary["messages"]
    assert simulate(on("stacked", **scenario)).summary["digest"] == other.summary["digest"]


def test_convolutions_can_be_stacked() -> None:
    assert close(simulate(on("inline", **IMAGES)), simulate(on("stacked", **IMAGES)))


def test_a_stacked_run_that_is_left_after_any_event_ends_as_if_it_had_not_been() -> None:
    experiment = Experiment(on("stacked", **ATTACKED, model={"name": "mlp", "hidden": [5]}))
    assert isinstance(experiment.trainer, Stacked)
    expected = lived(experiment)
    for place in range(0, expected.num_events, 17):
        assert lived(experiment, lambda event, place=place: event == place).traces == expected.traces


def test_a_model_that_cannot_be_stacked_is_trained_anyway_and_that_is_said(caplog: Any) -> None:
    experiment = Experiment(on("inline"))
    odd = FlatModel(nn.Sequential(nn.Linear(8, 4), nn.Softplus(), nn.Linear(4, 3)))
    executor = stacked(odd, experiment.trainer.training_data)
    assert isinstance(executor, Inline)
    assert "Softplus" in caplog.text
    assert executor.submit(0, 1, TrainingTask(odd.initial(0).unsqueeze(0))).result().num_steps > 0


def test_auto_stacks_small_models_and_trains_others_in_threads() -> None:
    training_data = Experiment(on("inline")).trainer.training_data
    assert isinstance(auto(FlatModel(mlp([8], 3)), training_data, workers=1), Stacked)
    assert isinstance(auto(FlatModel(mlp([8], 3, hidden=[10_000])), training_data, workers=2), Threads)
    assert isinstance(auto(FlatModel(cnn([3, 8, 8], 3)), training_data, workers=1), Inline)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["inline", "stacked", *ELSEWHERE])
@pytest.mark.usefixtures("cluster")
def test_marks_are_the_same_everywhere(executor: str) -> None:
    experiment = Experiment(on("inline"))
    same, models = experiment.initial_model(0), [torch.randn(27, generator=_generator(i)) for i in range(6)]
    eval_jobs = [EvalJob(i, w, is_global=i % 2 == 0) for i, w in enumerate(models)] + [
        EvalJob(i, same) for i in range(6)
    ]
    trainer = Experiment(on(executor)).trainer
    try:
        eval_result = trainer.evaluate(eval_jobs)
    finally:
        trainer.close()
    for eval_job, mark in zip(eval_jobs, eval_result, strict=True):
        expected = experiment.trainer.training_data.evaluate(experiment.model, eval_job)
        assert mark.personal.accuracy == expected.personal.accuracy
        assert mark.personal.loss == pytest.approx(expected.personal.loss, rel=1e-5)
        assert (mark.everything is None) == (not eval_job.is_global)
        if mark.everything is not None and expected.everything is not None:
            assert mark.everything.accuracy == expected.everything.accuracy


def test_an_executor_can_be_used_again_after_it_was_closed() -> None:
    experiment = Experiment(on({"name": "threads", "workers": 2}))
    assert simulate(experiment).summary["digest"] == simulate(experiment).summary["digest"]


@pytest.mark.slow
@with_ray
@pytest.mark.usefixtures("cluster")
def test_work_of_a_killed_ray_worker_is_done_by_another() -> None:
    import ray

    here, there = Experiment(on("inline")).trainer, Experiment(on({"name": "ray", "workers": 2})).trainer
    assert isinstance(there, RayActors)
    task = TrainingTask(here.model.initial(1).unsqueeze(0))
    try:
        there.submit(0, 1, task).result()
        assert there._actors is not None
        for _ in range(2):
            ray.kill(next(there._actors), no_restart=False)
        jobs = [there.submit(client, 1, task) for client in range(6)]
        for client, job in enumerate(jobs):
            assert torch.equal(job.result().w, here.submit(client, 1, task).result().w)
    finally:
        there.close()


@pytest.mark.slow
@with_ray
@pytest.mark.usefixtures("cluster")
def test_run_ends_as_usual_whenever_its_ray_workers_are_killed() -> None:
    # Results of a megabyte travel through Ray's object store, those of small models do not.
    changes = {**ATTACKED, "model": {"name": "mlp", "hidden": [20_000]}, "rounds": 8}
    expected = simulate(on("inline", **changes)).summary["digest"]
    random, ended, killed = Random(1), Event(), list[int]()

    def kill() -> None:
        """A job is tried four times, and all jobs in flight may be those of one worker."""
        while len(killed) < MAX_RETRIES and not ended.wait(random.uniform(0, 0.3)):
            for process in ray_processes("Actor.do")[:1]:
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    killer = Thread(target=kill)
    killer.start()
    try:
        assert simulate(on({"name": "ray", "workers": 2}, **changes)).summary["digest"] == expected
    finally:
        ended.set()
        killer.join()
    assert killed


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
