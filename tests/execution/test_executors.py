"""Results do not depend on the executor."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import nn

from rdpfl_sim import simulate
from rdpfl_sim.execution.auto import auto, stacked
from rdpfl_sim.execution.executor import EvalJob, Executor, Inline
from rdpfl_sim.execution.ray import MAX_RETRIES, RayActors, RaySession
from rdpfl_sim.execution.stacked import Stacked
from rdpfl_sim.execution.threads import Threads
from rdpfl_sim.learning.models import FlatModel, cnn, mlp
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.simulation import Result
from tests.killing import ray_processes
from tests.runs import lived
from tests.support import round_job, small_scenario

with_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
PARALLEL = ["threads", pytest.param("ray", marks=with_ray)]

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
CHANGING = {
    **ATTACKED,
    "model": {"name": "mlp", "hidden": [6]},
    "training": {
        "batch_size": 16,
        "momentum": 0.5,
        "momentum_over_rounds": True,
        "clip_gradient": 0.5,
        "schedule": {"name": "cosine", "warmup": 2},
    },
    "faults": [{"name": "crash", "clients": [1, 2], "at_s": 3.0, "recover_after_s": 1.5, "state": "fresh"}],
}
"""Settings with which clients of different rounds train differently."""
IMAGES = {
    "data": {"name": "synthetic", "shape": [3, 8, 8], "num_classes": 3, "num_train": 200, "num_test": 40},
    "model": {"name": "cnn", "width": 4, "hidden": 8},
    "rounds": 2,
}
RESIDUAL = {**IMAGES, "model": {"name": "resnet", "width": 2}, "rounds": 2}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Start one small cluster for all tests of this module, because starting takes seconds."""
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
        torch.allclose(v, w, rtol=1e-4, atol=1e-6)
        for v, w in zip(one.models.vectors, other.models.vectors, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("executor", PARALLEL)
@pytest.mark.usefixtures("cluster")
def test_digest_is_that_of_an_inline_run(executor: str) -> None:
    evaluation = {"every": 2, "validation_fraction": 0.2, "consensus": True}
    ditto = {**CHANGING, "method": "ditto"}
    for changes in (ATTACKED, IMAGES, {"evaluation": evaluation}, ditto, RESIDUAL):
        expected = simulate(on("inline", **changes)).summary["digest"]
        parallel = {"name": executor, "workers": 2}
        assert simulate(on(parallel, **changes)).summary["digest"] == expected


@pytest.mark.parametrize("method", ["rdpfl", "ditto", "dispfl", "dfedavgm", "fedper"])
def test_stacked_training_equals_inline_training_up_to_rounding(method: str) -> None:
    scenario = {**ATTACKED, "method": method, "model": {"name": "mlp", "hidden": [6]}}
    one, other = simulate(on("inline", **scenario)), simulate(on("stacked", **scenario))
    assert close(one, other)
    assert other.summary["messages"] == one.summary["messages"]
    assert simulate(on("stacked", **scenario)).summary["digest"] == other.summary["digest"]


@pytest.mark.parametrize("method", ["rdpfl", "ditto", "dispfl"])
def test_schedules_momentum_over_rounds_and_clipping_are_the_same_when_stacked(method: str) -> None:
    scenario = {**CHANGING, "method": method}
    one, other = simulate(on("inline", **scenario)), simulate(on("stacked", **scenario))
    assert close(one, other)
    for option in ("momentum_over_rounds", "clip_gradient", "schedule"):
        without = {key: value for key, value in CHANGING["training"].items() if key != option}
        assert not close(one, simulate(on("inline", **{**scenario, "training": without})))


def test_convolutions_can_be_stacked() -> None:
    assert close(simulate(on("inline", **IMAGES)), simulate(on("stacked", **IMAGES)))


@pytest.mark.parametrize(
    "changes", [{**ATTACKED, "model": {"name": "mlp", "hidden": [5]}}, {**CHANGING, "method": "ditto"}]
)
def test_stacked_run_that_is_interrupted_after_any_event_has_the_same_traces(changes: dict[str, Any]) -> None:
    experiment = Experiment(on("stacked", **changes))
    assert isinstance(experiment.make_executor(), Stacked)
    expected = lived(experiment)
    for number in range(0, expected.num_events, 17):
        assert lived(experiment, lambda event, number=number: event == number).traces == expected.traces


def test_model_that_cannot_be_stacked_is_trained_inline_with_a_warning() -> None:
    experiment = Experiment(on("inline"))
    odd = FlatModel(lambda: nn.Sequential(nn.Linear(8, 4), nn.Softplus(), nn.Linear(4, 3)))
    executor = stacked(replace(experiment.computation, model=odd))
    assert isinstance(executor, Inline)
    assert executor.warning == (
        "clients are trained one at a time, because the model has a layer of type Softplus"
    )
    state = experiment.method.init(odd.initial(0).unsqueeze(0), [])
    assert executor.submit(round_job(0, 1, state)).result.trained.num_steps[0] > 0


def test_auto_stacks_small_models_and_trains_others_in_threads() -> None:
    experiment = Experiment(on("inline"))

    def chosen(build: Callable[[], nn.Module], workers: int, **settings: Any) -> Executor:
        data = experiment.training_data
        data = replace(data, settings=replace(data.settings, **settings))
        computation = replace(experiment.computation, model=FlatModel(build), training_data=data)
        return auto(computation, workers=workers)

    assert isinstance(chosen(partial(mlp, [8], 3), workers=1), Stacked)
    assert isinstance(chosen(partial(mlp, [8], 3, hidden=[10_000]), workers=2), Threads)
    assert isinstance(chosen(partial(cnn, [3, 8, 8], 3), workers=1), Inline)
    assert isinstance(chosen(lambda: nn.Sequential(nn.Linear(8, 3), nn.Dropout()), workers=1), Inline)
    assert isinstance(chosen(partial(mlp, [8], 3), workers=1, precision="bfloat16"), Inline)


def test_training_in_bfloat16_is_not_stacked() -> None:
    experiment = Experiment(on("inline"))
    data = experiment.training_data
    data = replace(data, settings=replace(data.settings, precision="bfloat16"))
    executor = stacked(replace(experiment.computation, training_data=data))
    assert isinstance(executor, Inline)
    assert executor.warning == ("clients are trained one at a time, because training.precision is 'bfloat16'")


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["inline", "stacked", *PARALLEL])
@pytest.mark.usefixtures("cluster")
def test_evaluations_are_the_same_with_every_executor(executor: str) -> None:
    experiment = Experiment(on("inline"))
    same, models = experiment.initial_model(0), [torch.randn(27, generator=_generator(i)) for i in range(6)]
    jobs = [EvalJob(i, w, is_global=i % 2 == 0) for i, w in enumerate(models)] + [
        EvalJob(i, same) for i in range(6)
    ]
    with closing(Experiment(on(executor)).make_executor()) as made:
        results = made.evaluate(jobs)
    for job, result in zip(jobs, results, strict=True):
        expected = experiment.training_data.evaluate(experiment.model, job)
        assert result.personal.accuracy == expected.personal.accuracy
        assert result.personal.loss == pytest.approx(expected.personal.loss, rel=1e-5)
        assert (result.on_global is None) == (not job.is_global)
        if result.on_global is not None and expected.on_global is not None:
            assert result.on_global.accuracy == expected.on_global.accuracy


def test_experiment_can_run_twice() -> None:
    experiment = Experiment(on({"name": "threads", "workers": 2}))
    assert simulate(experiment).summary["digest"] == simulate(experiment).summary["digest"]


@pytest.mark.slow
@with_ray
@pytest.mark.usefixtures("cluster")
def test_jobs_of_a_killed_ray_worker_are_repeated() -> None:
    import ray

    experiment = Experiment(on("inline"))
    inline, state = experiment.make_executor(), experiment.initial_state(0)
    remote = Experiment(on({"name": "ray", "workers": 2})).make_executor()
    assert isinstance(remote, RayActors)
    with closing(remote):
        assert remote.submit(round_job(0, 1, state)).result.trained.num_steps[0] > 0
        assert remote._actors is not None
        for _ in range(2):
            ray.kill(next(remote._actors), no_restart=False)
        jobs = [remote.submit(round_job(client, 1, state)) for client in range(6)]
        for client, job in enumerate(jobs):
            expected = inline.submit(round_job(client, 1, state)).result.trained.w
            assert torch.equal(job.result.trained.w, expected)


@pytest.mark.slow
@with_ray
@pytest.mark.usefixtures("cluster")
def test_digest_does_not_change_if_ray_workers_are_killed() -> None:
    # Large results pass through Ray's object store, those of small models do not.
    changes = {**ATTACKED, "model": {"name": "mlp", "hidden": [20_000]}, "rounds": 8}
    expected = simulate(on("inline", **changes)).summary["digest"]
    random, ended, killed = Random(1), Event(), list[int]()

    def kill() -> None:
        """Kill at most MAX_RETRIES workers, because one job may be affected every time."""
        while len(killed) < MAX_RETRIES and not ended.wait(random.uniform(0, 0.3)):
            for process in ray_processes("Actor.call")[:1]:
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
