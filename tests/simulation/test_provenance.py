import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import simpy
import torch

from rdpfl_sim import simulate
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.simulation import provenance as origin
from rdpfl_sim.simulation.provenance import changes, environment, provenance, session
from tests.support import small_scenario

CPU = torch.device("cpu")


def test_every_run_has_provenance(tmp_path: Path) -> None:
    scenario = small_scenario(execution={"threads": 2})
    folder = simulate(scenario, tmp_path).folder
    assert folder is not None
    found = json.loads((folder / "provenance.json").read_text())
    assert found["scenario_hash"] == scenario.hash
    assert "method.c" in found["defaults"]
    assert "execution.threads" not in found["defaults"]
    [only] = found["sessions"]
    assert only["versions"]["torch"] == torch.__version__.split("+")[0]
    assert only["versions"]["numpy"] == numpy.__version__
    assert only["versions"]["simpy"] == simpy.__version__
    assert only["versions"]["python"] == platform.python_version()
    assert only["machine"]["cores"] == os.cpu_count()
    assert (only["device"], only["threads"], only["arithmetic"]) == ("cpu", 2, "portable")
    assert only["started_at"].endswith("+00:00")
    assert Path(only["command"].split()[0]).name == Path(sys.argv[0]).name


def test_failed_run_has_provenance(tmp_path: Path) -> None:
    class Impatient:
        def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(small_scenario(), tmp_path, Impatient())
    [folder] = tmp_path.iterdir()
    assert (folder / "provenance.json").exists()
    assert json.loads((folder / "summary.json").read_text()) == {
        "schema": SCHEMA,
        "status": "failed",
        "error": "ZeroDivisionError: ",
    }


def test_resumed_run_keeps_its_earlier_sessions(tmp_path: Path) -> None:
    first = provenance(tmp_path, small_scenario(), CPU, "portable")
    (tmp_path / "provenance.json").write_text(json.dumps(first))
    second = provenance(tmp_path, small_scenario(), CPU, "portable")
    assert second["sessions"][0] == first["sessions"][0]
    assert len(second["sessions"]) == 2


def test_the_processor_changes_results_unless_both_sessions_are_portable() -> None:
    here = environment("cpu", "portable")
    abacus = {**here["machine"], "processor": "an abacus", "instructions": "addition"}
    there = {**here, "machine": abacus}
    assert changes(there, here) == []
    found = changes({**there, "arithmetic": "native"}, {**here, "arithmetic": "native"})
    assert [text.split(",")[0] for text in found] == [
        "processor was an abacus",
        "instructions was addition",
    ]
    assert changes({**there, "arithmetic": "native"}, here) == ["arithmetic was native, is portable"]


def test_session_without_arithmetic_was_native() -> None:
    here = environment("cpu", "native")
    older = {key: value for key, value in here.items() if key != "arithmetic"}
    assert changes(older, here) == []
    assert changes(older, {**here, "arithmetic": "portable"}) == ["arithmetic was native, is portable"]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit that appears to contain the package."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    environment = {
        **os.environ,
        **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    package = tmp_path / "rdpfl_sim"
    (package / "simulation").mkdir(parents=True)
    (package / "simulation/provenance.py").write_text("")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, env=environment)
    monkeypatch.setattr(origin, "__file__", str(package / "simulation/provenance.py"))
    origin._code.cache_clear()
    yield tmp_path
    origin._code.cache_clear()


def test_provenance_names_the_commit_and_whether_the_code_was_changed(checkout: Path) -> None:
    head = subprocess.run(
        ["git", "-C", checkout, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert session(CPU, "portable")["code"] == {"commit": head, "changed": False}
    (checkout / "rdpfl_sim" / "simulation/provenance.py").write_text("changed")
    origin._code.cache_clear()
    assert session(CPU, "portable")["code"] == {"commit": head, "changed": True}


def test_without_git_or_a_checkout_the_commit_is_not_known(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    assert session(CPU, "portable")["code"] == {"commit": None, "changed": None}
    monkeypatch.undo()
    origin._code.cache_clear()
    shutil.rmtree(checkout / ".git")
    monkeypatch.setattr(origin, "__file__", str(checkout / "rdpfl_sim" / "simulation/provenance.py"))
    assert session(CPU, "portable")["code"] == {"commit": None, "changed": None}
