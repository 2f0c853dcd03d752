"""Portable arithmetic is the default, and a process never mixes it with native arithmetic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from rdpfl_sim import Scenario, ScenarioError, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.execution import arithmetic
from rdpfl_sim.execution.arithmetic import VARIABLES
from rdpfl_sim.execution.ray import Worker, WorkerPayload
from rdpfl_sim.files import read_json
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from tests.support import small_scenario

IS_X86 = arithmetic._is_x86()
ON_X86 = pytest.mark.skipif(not IS_X86, reason="portable arithmetic exists only on x86-64 processors")

PRODUCT = "import torch; torch.dot(torch.ones(3), torch.ones(3))\n"
IMPORT = "from rdpfl_sim.execution import arithmetic\n"
STATE = "print(arithmetic._mkl_mode(), torch.backends.cpu.get_cpu_capability(), arithmetic.in_use())"
RUN = """
from tests.support import small_scenario
from rdpfl_sim import simulate, ScenarioError
try:
    print(simulate(small_scenario(execution={'arithmetic': %r})).summary["digest"])
except ScenarioError as error:
    print(error)
"""


def new_process(code: str, **variables: str) -> str:
    """Return the output of a process that starts without the variables of portable arithmetic."""
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def native_run(folder: Path) -> Path:
    """Return the folder of a run in native arithmetic, computed by a new process."""
    new_process(
        "from tests.support import small_scenario; from rdpfl_sim import simulate\n"
        f"simulate(small_scenario(execution={{'arithmetic': 'native'}}), {str(folder)!r})"
    )
    [run] = folder.iterdir()
    return run


@ON_X86
@pytest.mark.slow
def test_importing_the_package_is_enough_for_portable_arithmetic() -> None:
    assert new_process(f"import rdpfl_sim\n{PRODUCT}{IMPORT}{STATE}") == "3 AVX2 portable"


@ON_X86
@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "default"}])
def test_portable_run_replaces_other_settings_of_the_environment(variables: dict[str, str]) -> None:
    here = simulate(small_scenario()).summary["digest"]
    assert new_process(RUN % "portable", **variables) == here


@ON_X86
@pytest.mark.slow
def test_portable_run_is_refused_in_a_process_that_has_computed_natively() -> None:
    for first in (PRODUCT, RUN % "native"):
        last = new_process(first + RUN % "portable").splitlines()[-1]
        assert last == (
            "execution.arithmetic: this process has already computed with torch in native arithmetic; start "
            "a new process (restart the kernel of a notebook) and import rdpfl_sim first, or set "
            "execution.arithmetic = 'native', with results that depend on the processor (given: 'portable')"
        )


@ON_X86
@pytest.mark.slow
def test_native_run_is_refused_in_a_process_that_has_computed_portably() -> None:
    for first in (f"import rdpfl_sim\n{PRODUCT}", RUN % "portable"):
        last = new_process(first + RUN % "native").splitlines()[-1]
        assert last.startswith(
            "execution.arithmetic: this process has already computed with torch in portable arithmetic; start"
        )


@ON_X86
@pytest.mark.slow
def test_native_run_does_not_inherit_portable_arithmetic() -> None:
    code = IMPORT + "arithmetic.use('native')\n" + PRODUCT + STATE
    mode, capability, name = new_process(code, **VARIABLES).split()
    assert (mode, name) == ("1", "native")
    assert capability == new_process("import torch; print(torch.backends.cpu.get_cpu_capability())")


@ON_X86
@pytest.mark.slow
def test_check_of_a_plugin_does_not_decide_the_arithmetic_of_a_native_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rdpfl_sim.plugins import View, attack\n"
        "@attack\ndef turned(view: View):\n    return view.own * (view.own @ view.own)\n"
    )
    scenario = {"plugins": ["mine.py"]} if "plugins" in Scenario.model_fields else {}
    raw = {
        **scenario,
        "adversary": {"fraction": 0.34, "attack": "turned"},
        "rounds": 2,
        "clients": {"count": 6},
    }
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mine\n"
        "from rdpfl_sim import Scenario, simulate\n"
        f"raw = {raw!r} | {{'execution': {{'arithmetic': 'native'}}}}\n"
        "print(simulate(Scenario.from_dict(raw)).summary['status'])"
    )
    assert new_process(code) == "finished"


def test_processor_without_avx2_is_refused_for_portable_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "_is_x86", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "fma3": False}, raising=False)
    with pytest.raises(ScenarioError, match=r"lacks AVX2 or FMA; set execution\.arithmetic = 'native'"):
        Experiment(small_scenario())


@ON_X86
def test_without_the_mode_of_mkl_a_product_shows_the_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    arithmetic.use("portable")
    monkeypatch.setattr(arithmetic, "_mkl_mode", lambda: None)
    arithmetic.use("portable")
    monkeypatch.setattr(arithmetic, "PROBE", "0" * 12)
    with pytest.raises(ScenarioError, match="has already computed with torch in native arithmetic"):
        arithmetic.use("portable")


def test_other_processors_are_native_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "_is_x86", lambda: False)
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    result = simulate(small_scenario(), tmp_path)
    assert result.folder is not None
    assert any("the processor is 'arm64'" in text for text in result.summary["warnings"])
    assert read_json(result.folder / "provenance.json")["sessions"][0]["arithmetic"] == "native"


def test_gpu_is_native_with_a_reason() -> None:
    assert arithmetic.why_native("cuda:0") == "the device is 'cuda:0'"
    assert (arithmetic.why_native("cpu") is None) == IS_X86


@ON_X86
@pytest.mark.slow
def test_native_run_without_the_key_is_replayed_natively(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = native_run(tmp_path / "native")
    session = read_json(run / "provenance.json")["sessions"][0]
    assert session["arithmetic"] == "native"
    path = run / "scenario.toml"
    path.write_text(path.read_text().replace('arithmetic = "native"\n', ""))
    assert Scenario.of_run(run).execution.arithmetic == "native"
    assert Scenario.of_run(run).hash == read_json(run / "provenance.json")["scenario_hash"]
    portable = simulate(small_scenario(), tmp_path / "portable").folder
    assert main(["verify", "--replay", "--json", str(portable), str(run)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["run"] for entry in found] == [str(portable), str(run)]
    assert all(entry["checks"][-1]["check"] == "replay" for entry in found)


def test_arithmetic_cannot_vary_in_a_sweep() -> None:
    base: dict[str, Any] = {"rounds": 2, "clients": {"count": 4}}
    sweep = SweepSpec.from_dict({"base": base, "grid": {"execution.arithmetic": ["portable", "native"]}})
    with pytest.raises(
        ScenarioError, match=r"execution\.arithmetic: must be the same in all runs of a sweep"
    ):
        plan_runs(sweep)
    sweep = SweepSpec.from_dict({"base": base, "set": {"execution.arithmetic": "native"}})
    assert [run.scenario.execution.arithmetic for run in plan_runs(sweep)] == ["native"]


@ON_X86
def test_worker_has_the_arithmetic_of_its_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment(small_scenario())
    payload, tensors = WorkerPayload.pack(experiment.model, experiment.training_data)
    assert payload.arithmetic == "portable"
    used = list[str]()
    monkeypatch.setattr(arithmetic, "use", used.append)
    Worker(payload, tensors)
    assert used == ["portable"]


def test_scenario_file_with_another_name_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(tomli_w.dumps({"execution": {"arithmetic": "fast"}}))
    assert main(["validate", str(path)]) == 2
    assert "execution.arithmetic" in capsys.readouterr().err
