"""Every notebook runs on small runs, and the committed outputs are complete."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from rdpfl_sim import simulate
from rdpfl_sim.sweeps.plan import missing_runs, write_plan
from rdpfl_sim.sweeps.runner import folder_of
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs

pytestmark = pytest.mark.slow

ANALYSIS = Path(__file__).parents[2] / "analysis"
NOTEBOOKS = sorted(ANALYSIS.glob("*.ipynb"))
EVERY_NOTEBOOK = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def sweeps_of(path: Path) -> list[str]:
    return re.findall(r'sweep\("(\w+)"\)', "\n".join(cell.source for cell in cells(path, "code")))


def run_small(name: str, folder: Path) -> None:
    """Run `rdpfl-sim sweep --profile tiny` without worker processes, which are slow to start."""
    planned = SweepSpec.load(ANALYSIS / "scenarios" / f"{name}.toml")
    runs, output = plan_runs(planned, "tiny"), folder / f"{name}-tiny"
    write_plan(output, planned, output.name, runs)
    for run in missing_runs(runs, output):
        done = simulate(run.scenario, folder / "scratch").folder
        assert done is not None
        target = folder_of(run, output)
        target.parent.mkdir(exist_ok=True)
        done.rename(target)


def test_notebooks_use_every_sweep() -> None:
    used = {name for path in NOTEBOOKS for name in sweeps_of(path)}
    assert used == {path.stem for path in (ANALYSIS / "scenarios").glob("*.toml")}


@EVERY_NOTEBOOK
def test_notebook_runs_on_small_runs(path: Path, tmp_path: Path) -> None:
    for name in sweeps_of(path):
        run_small(name, tmp_path)
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    paths = os.pathsep.join([str(ANALYSIS), str(ANALYSIS.parent), os.environ.get("PYTHONPATH", "")])
    small = {"RDPFL_ANALYSIS_RUNS": str(tmp_path), "RDPFL_ANALYSIS_PROFILE": "tiny", "PYTHONPATH": paths}
    command = [sys.executable, str(ANALYSIS / "execute.py"), str(copy)]
    done = subprocess.run(command, env=os.environ | small, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(cell.execution_count for cell in cells(copy, "code"))


def test_error_for_missing_runs_names_the_sweep_that_creates_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ANALYSIS))
    experiments = importlib.import_module("experiments")
    monkeypatch.setattr(experiments, "FOLDER", tmp_path)
    command = "rdpfl-sim sweep analysis/scenarios/first_look.toml --output analysis/runs"
    with pytest.raises(SystemExit, match=command):
        experiments.sweep("first_look")


@EVERY_NOTEBOOK
def test_committed_notebook_is_complete_and_small_and_names_no_machine(path: Path) -> None:
    assert path.stat().st_size < 400_000
    counts = [cell.execution_count for cell in cells(path, "code")]
    assert counts == list(range(1, len(counts) + 1)), "run it with make analysis"
    assert all("execution" not in cell.metadata for cell in cells(path, "code"))
    images = r'"image/png": "[^"]*"'
    assert not re.search(r"/home/|/root|/tmp|/Users/|Traceback", re.sub(images, "", path.read_text()))


@EVERY_NOTEBOOK
def test_links_in_notebooks_are_valid(path: Path) -> None:
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []
