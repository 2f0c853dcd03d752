"""The choice of a device, its settings, and its name in the records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rdpfl_sim import Scenario, ScenarioError, resume, simulate
from rdpfl_sim.execution import devices
from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.execution.executor import Inline
from rdpfl_sim.simulation.experiment import Experiment
from tests.execution.simulated_gpu import NAME, SimulatedGpu
from tests.runs import interrupt, left
from tests.support import small_scenario

GPU = torch.device("cuda", 0)
LARGE = {"model": {"name": "mlp", "hidden": [5000]}}
"""8 * 5000 + 5000 + 5000 * 3 + 3 parameters: enough for a GPU."""


def on(device: str, executor: str = "auto", **changes: Any) -> Scenario:
    return small_scenario(**changes, execution={"device": device, "executor": executor})


def problem(device: str, executor: str = "auto") -> str:
    with pytest.raises(ScenarioError) as error:
        Experiment(on(device, executor))
    [found] = error.value.problems
    return str(found)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:01", "CUDA", "cpu:0", "cuda:1000"])
def test_invalid_device_name_is_rejected(name: str) -> None:
    assert problem(name) == (
        "execution.device: must be 'auto', 'cpu', 'cuda', or 'cuda:1' for the second GPU, 'cuda:2' for the "
        f"third ... (given: {name!r})"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_cuda_is_rejected_without_a_gpu(name: str) -> None:
    expected = f"execution.device: no CUDA device is available; allowed: auto, cpu (given: {name!r})"
    assert problem(name) == expected


def test_error_for_a_missing_gpu_lists_the_available_ones() -> None:
    with SimulatedGpu(num_devices=2):
        text = "no such GPU; allowed: auto, cpu, cuda, cuda:0, cuda:1 (given: 'cuda:2')"
        assert problem("cuda:2") == f"execution.device: {text}"


def test_second_gpu_can_be_selected() -> None:
    with SimulatedGpu(num_devices=2):
        experiment = Experiment(on("cuda:1"))
        assert experiment.model.vector.device == torch.device("cuda", 1)
        result = simulate(experiment)
    assert result.summary["wall"]["device"] == "cuda:1"


@pytest.mark.parametrize(
    ("executor", "changes", "expected"),
    [
        ("auto", {}, "cpu"),
        ("threads", {}, "cpu"),
        ("auto", LARGE, "cuda:0"),
        ("inline", LARGE, "cuda:0"),
        ("stacked", LARGE, "cpu"),
        ("ray", LARGE, "cpu"),  # the driver process; the workers have their own devices
    ],
)
def test_auto_is_a_gpu_for_large_models(executor: str, changes: dict[str, Any], expected: str) -> None:
    assert Experiment(on("auto", executor, **changes)).device == devices.CPU
    with SimulatedGpu():
        assert str(Experiment(on("auto", executor, **changes)).device) == expected


def test_executor_auto_is_inline_on_a_gpu() -> None:
    with SimulatedGpu():
        assert isinstance(Experiment(on("cuda")).make_executor(), Inline)


def test_stacking_on_a_gpu_causes_a_warning() -> None:
    def warns(device: str, executor: str) -> bool:
        warnings = Experiment(on(device, executor)).warnings
        return any("checkpoints and interruptions may change the digest" in text for text in warnings)

    with SimulatedGpu():
        assert warns("cuda", "stacked")
        assert not warns("cuda", "inline")
        assert not warns("auto", "stacked")
    assert not warns("cpu", "stacked")


def test_models_are_returned_on_the_cpu() -> None:
    with SimulatedGpu():
        result = simulate(on("cuda"))
        assert all(w.is_cpu for w in result.models.vectors)
    assert (result.summary["wall"]["device"], result.summary["wall"]["trained_on"]) == ("cuda:0", NAME)


def test_resuming_on_another_device_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SimulatedGpu():
        folder = left(on("auto", **LARGE, checkpoint={"every_rounds": 1}), tmp_path, 13, interrupt)
    resumed = resume(folder)
    assert f"so its digest may differ: device was {NAME}, is cpu" in caplog.text
    assert resumed.summary["status"] == "finished"


def test_resuming_on_the_same_device_causes_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SimulatedGpu(num_devices=2):
        folder = left(on("cuda:1", **LARGE, checkpoint={"every_rounds": 1}), tmp_path, 13, interrupt)
        resume(folder)
    assert "digest may differ" not in caplog.text


@pytest.mark.parametrize(
    ("given", "expected", "warns"),
    [
        (None, ":4096:8", False),
        (":4096:8", ":4096:8", False),
        (":16:8", ":16:8", False),
        (":0:0", ":0:0", True),
    ],
)
def test_cublas_is_configured_for_reproducible_results(
    given: str | None, expected: str, warns: bool, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(devices.CUBLAS, raising=False)
    if given is not None:
        monkeypatch.setenv(devices.CUBLAS, given)
    with SimulatedGpu():
        Experiment(on("cuda"))
        assert os.environ[devices.CUBLAS] == expected
    assert ("results may differ between runs" in caplog.text) == warns


def test_late_configuration_of_cublas_causes_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(devices.CUBLAS, raising=False)
    with SimulatedGpu():
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        Experiment(on("cuda"))
        assert "CUDA was initialized before CUBLAS_WORKSPACE_CONFIG was set" in caplog.text
        caplog.clear()
        Experiment(on("cuda"))  # the first experiment has already warned
        assert not caplog.text


def test_run_on_the_cpu_does_not_configure_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(devices.CUBLAS, raising=False)
    Experiment(on("cpu"))
    assert devices.CUBLAS not in os.environ


def test_algorithms_on_a_gpu_are_deterministic_only_inside_the_context() -> None:
    with deterministic_torch(1, GPU):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_torch(1):
        assert not torch.are_deterministic_algorithms_enabled()


def test_stricter_setting_of_the_user_is_kept() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with deterministic_torch(1, GPU):
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
