"""Runs on a simulated GPU, which rejects tensors on the wrong device and counts slow operations.

The rounding of a real GPU cannot be tested this way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rdpfl_sim import Scenario, resume, simulate
from rdpfl_sim.aggregators import AGGREGATORS, PRE_AGGREGATORS
from rdpfl_sim.attacks import ATTACKS
from rdpfl_sim.attacks.equivocation import EQUIVOCATIONS
from rdpfl_sim.methods import METHODS
from rdpfl_sim.methods.base import TrainingTask
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.simulation import Result
from tests.execution.simulated_gpu import NAME, SimulatedGpu
from tests.runs import interrupt, left
from tests.simulation.test_snapshot import SMALL
from tests.support import small_scenario

pytestmark = pytest.mark.slow

ATTACKED = {"adversary": [{"ids": [1, 4], "attack": "sign_flip"}], "topology": "complete"}
IMAGES = {
    "data": {"name": "synthetic", "shape": [3, 8, 8], "num_classes": 3, "num_train": 300, "num_test": 40},
    "model": {"name": "cnn", "width": 4, "hidden": 8},
}
THEORY = {"evaluation": {"every": 1, "theory": True}, "method": {"name": "rdpfl", "aggregator": "mean"}}


def on(device: str, executor: str = "inline", **changes: Any) -> Scenario:
    return small_scenario(
        **{"model": {"name": "mlp", "hidden": [4]}, **changes},
        execution={"device": device, "executor": executor},
    )


def on_both(executor: str = "inline", **changes: Any) -> tuple[Result, Result]:
    """Return the results of the same run on a CPU and on a simulated GPU."""
    on_cpu = simulate(on("cpu", executor, **changes))
    with SimulatedGpu() as gpu:
        experiment = Experiment(on("cuda", executor, **changes))
        assert experiment.model.vector.is_cuda
        on_gpu = simulate(experiment)
    assert gpu.counts.launches > 0
    return on_cpu, on_gpu


def assert_alike(on_cpu: Result, on_gpu: Result) -> None:
    """Assert that results are equal up to rounding: some operations differ on a GPU."""
    assert on_cpu.summary["messages"] == on_gpu.summary["messages"]
    for v, w in zip(on_cpu.models.vectors, on_gpu.models.vectors, strict=True):
        assert torch.allclose(v, w, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", [*METHODS], ids=str)
def test_every_method_runs_on_a_gpu(method: Any) -> None:
    assert_alike(*on_both(method=method, **ATTACKED))


@pytest.mark.parametrize("method", [*METHODS], ids=str)
def test_every_method_runs_stacked_on_a_gpu(method: Any) -> None:
    assert_alike(*on_both("stacked", method=method, **ATTACKED))


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_runs_on_a_gpu(attack: str) -> None:
    assert_alike(*on_both(topology="complete", adversary=[{"ids": [1, 4], "attack": attack}]))


@pytest.mark.parametrize("equivocation", EQUIVOCATIONS)
def test_every_equivocation_runs_on_a_gpu(equivocation: str) -> None:
    adversary = {"ids": [1, 4], "attack": "noise", "equivocation": equivocation}
    assert_alike(*on_both(topology="complete", adversary=[adversary]))


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_every_aggregator_runs_on_a_gpu(aggregator: str) -> None:
    assert_alike(*on_both(method={"name": "direct", "lambda": 0.5, "aggregator": aggregator}, **ATTACKED))


@pytest.mark.parametrize("pre_aggregator", PRE_AGGREGATORS)
def test_every_pre_aggregator_runs_on_a_gpu(pre_aggregator: str) -> None:
    method = {"name": "direct", "aggregator": "trimmed_mean", "pre_aggregators": [pre_aggregator]}
    assert_alike(*on_both(method={**method, "lambda": 0.5}, **ATTACKED))


@pytest.mark.parametrize("executor", ["inline", "stacked", "threads"])
@pytest.mark.parametrize("changes", [IMAGES, THEORY, SMALL["everything"]], ids=["images", "theory", "faults"])
def test_every_executor_of_this_process_runs_on_a_gpu(executor: str, changes: dict[str, Any]) -> None:
    assert_alike(*on_both(executor, **changes))


@pytest.mark.parametrize("executor", ["inline", "stacked", "threads"])
def test_resumed_run_on_a_gpu_has_the_same_digest(tmp_path: Path, executor: str) -> None:
    scenario = on("cuda", executor, **SMALL["asynchronous"], checkpoint={"every_rounds": 1}, rounds=6)
    with SimulatedGpu():
        assert Experiment(scenario).model.vector.is_cuda
        whole = simulate(scenario, tmp_path / "whole")
        folder = left(scenario, tmp_path / "left", 13, interrupt)
        resumed = resume(folder)
        assert all(w.is_cpu for w in resumed.models.vectors)
    assert resumed.summary["wall"]["trained_on"] == NAME
    assert resumed.summary["digest"] == whole.summary["digest"]


def test_training_of_a_large_model_synchronises_once_per_job() -> None:
    """Launches are many and cheap; the host waits and copies at most once per job."""
    num_steps = 10
    scenario = on("cuda", **IMAGES, training={"local_steps": num_steps, "momentum": 0.9})
    with SimulatedGpu() as gpu:
        experiment = Experiment(scenario)
        job = experiment.training_data.job(0, 1, TrainingTask(experiment.initial_model(0).unsqueeze(0)))
        with gpu.counting() as counts:
            experiment.training_data.train(experiment.model, job)
    assert counts.launches <= 55 * num_steps
    assert counts.synchronisations <= 1
    assert counts.to_host == 0
    assert counts.to_device <= 1


@pytest.mark.parametrize(
    ("telemetry", "launches", "synchronisations", "copies"), [(True, 40, 3.2, 0.3), (False, 19.1, 3.1, 0.3)]
)
def test_round_of_a_small_client_rarely_synchronises(
    telemetry: bool, launches: float, synchronisations: float, copies: float
) -> None:
    """The upper bounds are slightly above the measured numbers, with one evaluation of each model."""
    scenario = on(
        "cuda",
        "stacked",
        clients={"count": 20},
        rounds=5,
        method="rdpfl",
        data={"name": "synthetic", "shape": [8], "num_classes": 3, "num_train": 1000, "num_test": 200},
        evaluation={"every": 5, "moments": "trained"},
        output={"telemetry": telemetry},
    )
    with SimulatedGpu() as gpu:
        experiment = Experiment(scenario)
        with gpu.counting() as counts:
            simulate(experiment)
    num_rounds = scenario.clients.count * scenario.rounds
    assert counts.synchronisations <= synchronisations * num_rounds
    assert counts.to_device <= copies * num_rounds
    assert counts.launches <= launches * num_rounds
