"""Requests of workers and runs for GPUs of a Ray cluster. The GPUs are simulated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import Scenario, ScenarioError, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.errors import RunError
from rdpfl_sim.execution.ray import RayActors
from rdpfl_sim.simulation.experiment import Experiment, wants_gpu
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.ray_runner import GpuShares, RayRunner, RayTasks
from rdpfl_sim.sweeps.runner import folder_of
from tests.execution.simulated_gpu import NAME, SimulatedGpu, simulate_in_this_process
from tests.execution.test_gpu import assert_alike
from tests.killing import wait_until
from tests.support import round_job, small_scenario
from tests.sweeps.sweeping import ENDLESS, RecordingListener, make_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")]

LARGE = {"model": {"name": "mlp", "hidden": [5000]}}


@pytest.fixture(scope="module")
def two_gpus() -> Iterator[None]:
    """Start a cluster with four processors and two GPUs, which its workers simulate."""
    import ray

    environment = {
        "worker_process_setup_hook": simulate_in_this_process,
        "env_vars": {"PYTHONPATH": str(Path(__file__).parents[2])},  # workers load the hook from there
    }
    ray.init(
        "local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def no_gpu(two_gpus: None) -> Iterator[None]:
    """Replace the cluster with one without GPUs, for the last test of the module."""
    import ray

    ray.shutdown()
    ray.init("local", num_cpus=1, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def on_ray(device: str, workers: int | None = None, share: float | None = None, **changes: Any) -> Scenario:
    options = {"workers": workers, "gpus_per_worker": share}
    executor = {"name": "ray", **{key: value for key, value in options.items() if value is not None}}
    return small_scenario(**changes, execution={"device": device, "executor": executor})


def free_gpus() -> float:
    import ray

    return float(ray.available_resources().get("GPU", 0.0))


def until_free(num_gpus: float) -> None:
    """Wait until this number of GPUs is unassigned."""
    wait_until(lambda: free_gpus() == num_gpus, lambda: f"{free_gpus()} GPUs are free, not {num_gpus}")


@pytest.mark.parametrize(
    ("scenario", "free"),
    [
        (on_ray("cuda", 2), 0.0),
        (on_ray("cuda", 3, 0.25), 1.25),
        (on_ray("cuda", share=0.5), 0.0),  # four workers, the maximum
        (on_ray("auto", 1, **LARGE), 1.0),
        (on_ray("auto", 1), 2.0),  # small models are trained on processors
        (on_ray("cpu", 1, **LARGE), 2.0),
    ],
)
@pytest.mark.usefixtures("two_gpus")
def test_workers_request_gpus(scenario: Scenario, free: float) -> None:
    until_free(2.0)
    experiment = Experiment(scenario)
    with closing(experiment.make_executor()) as executor:
        assert isinstance(executor, RayActors)
        result = executor.submit(round_job(0, 1, experiment.initial_state(0))).result
        assert result.trained.w.is_cpu
        assert executor.device_kind == ("cpu" if free == 2.0 else NAME)
        until_free(free)


@pytest.mark.usefixtures("two_gpus")
def test_workers_with_gpus_give_the_results_of_the_cpu() -> None:
    until_free(2.0)
    changes: dict[str, Any] = {"method": "ditto", "adversary": [{"ids": [1], "attack": "label_flip"}]}
    on_gpus = simulate(on_ray("cuda", **changes))
    assert on_gpus.summary["wall"]["trained_on"] == NAME
    assert_alike(simulate(small_scenario(**changes, execution={"executor": "inline"})), on_gpus)


@pytest.mark.usefixtures("two_gpus")
def test_more_workers_than_the_gpus_support_are_rejected() -> None:
    text = "execution.executor.workers: the GPUs of the Ray cluster support 2 workers"
    with pytest.raises(RunError, match=text):
        simulate(on_ray("cuda", 3, 1.0))


@pytest.mark.usefixtures("two_gpus")
def test_more_workers_than_processors_are_rejected() -> None:
    text = "execution.executor.workers: each worker needs one CPU, and the Ray cluster has 4"
    with pytest.raises(RunError, match=text):
        simulate(on_ray("cpu", 5))


def test_gpu_of_a_ray_worker_cannot_be_selected() -> None:
    with pytest.raises(ScenarioError, match="Ray chooses the GPU of each worker; allowed: auto, cpu, cuda"):
        Experiment(on_ray("cuda:1"))


def run(device: str, **changes: Any) -> PlannedRun:
    return make_run(1, execution={"device": device}, **changes)


@pytest.mark.usefixtures("two_gpus")
def test_runs_of_a_sweep_request_gpus(tmp_path: Path) -> None:
    until_free(2.0)
    runs = {
        "cpu": run("cpu", **LARGE),
        "auto, small": run("auto"),
        "auto": run("auto", **LARGE),
        "cuda": run("cuda"),
    }

    listener = RecordingListener()
    RayRunner(None, None, gpus_per_run=0.5).run(list(runs.values()), tmp_path, listener)
    assert set(listener.errors.values()) == {None}
    trained_on = {
        name: json.loads((folder_of(one, tmp_path) / "summary.json").read_text())["wall"]["trained_on"]
        for name, one in runs.items()
    }
    assert trained_on == {"cpu": "cpu", "auto, small": "cpu", "auto": NAME, "cuda": NAME}


@pytest.mark.usefixtures("two_gpus")
def test_runs_can_share_a_gpu() -> None:
    until_free(2.0)
    tasks = RayTasks(RecordingListener(), GpuShares([], 0.25))
    try:
        tasks.start(make_run(1, ENDLESS, **LARGE))
        tasks.start(make_run(2, ENDLESS, **LARGE))
        tasks.start(make_run(3, ENDLESS))
        until_free(1.5)
    finally:
        tasks.cancel()


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (small_scenario(**LARGE), True),
        (small_scenario(), False),
        (small_scenario(**LARGE, execution={"executor": "stacked"}), False),
        (small_scenario(**LARGE, execution={"device": "cpu"}), False),
        (small_scenario(execution={"device": "cuda"}), True),
        (small_scenario(execution={"device": "cuda", "executor": "ray"}), False),  # the workers use it
        (small_scenario(data={"name": "npz", "path": "/nowhere.npz"}), True),  # model of unknown size
    ],
)
def test_only_runs_that_use_a_gpu_request_one(scenario: Scenario, expected: bool) -> None:
    assert wants_gpu(scenario) == expected
    if expected and scenario.data.name != "npz":
        with SimulatedGpu():
            assert Experiment(scenario).device.type == "cuda"


@pytest.mark.usefixtures("two_gpus")
def test_gpu_of_a_sweep_on_ray_cannot_be_selected(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="Ray chooses the GPU of each run; allowed: auto, cpu, cuda"):
        RayRunner(None, None).run([run("cuda:1")], tmp_path, RecordingListener())


def test_gpus_per_run_requires_ray(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text("base = 'scenario.toml'\nseeds = [1]\n")
    (tmp_path / "scenario.toml").write_text("rounds = 1\n")
    assert main(["sweep", str(sweep), "--gpus-per-run", "0.5"]) == 2
    assert "--gpus-per-run: requires --engine ray (given: 0.5)" in capsys.readouterr().err
    for text in ("0", "1.5", "half", "nan"):
        with pytest.raises(SystemExit):
            main(["sweep", str(sweep), "--engine", "ray", "--gpus-per-run", text])
        assert f"must be above 0 and at most 1, not '{text}'" in capsys.readouterr().err


@pytest.mark.usefixtures("no_gpu")
def test_without_gpus_auto_is_the_cpu_and_cuda_is_rejected(tmp_path: Path) -> None:
    simulated = simulate(on_ray("auto", 1, **LARGE))
    assert simulated.summary["wall"]["trained_on"] == "cpu"
    with pytest.raises(RunError, match=r"execution\.device: no machine in the Ray cluster has a GPU"):
        simulate(on_ray("cuda"))
    with pytest.raises(ScenarioError, match=r"execution\.device: no machine in the Ray cluster has a GPU"):
        RayRunner(None, None).run([run("cuda")], tmp_path, RecordingListener())
    RayRunner(None, None).run([run("auto", **LARGE)], tmp_path, listener := RecordingListener())
    assert set(listener.errors.values()) == {None}
