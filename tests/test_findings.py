"""The findings: their sweeps are sound, and their figures and tables are made from the committed results."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from rdpfl_sim.scenario import Scenario
from rdpfl_sim.sweeps.plan import Sweep
from tests.test_notebooks import run_small

ROOT = Path(__file__).parents[1]
FINDINGS = ROOT / "analysis" / "findings"
SWEEPS = sorted(path for path in (FINDINGS / "scenarios").glob("*.toml") if path.stem != "breakdown")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch):
    """A module of the findings, by name."""
    monkeypatch.syspath_prepend(str(FINDINGS))

    def load(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_sweep_is_valid_and_has_its_results(path: Path) -> None:
    sweep = Sweep.load(path)
    is_large = "hour" in sweep.profiles
    planned = sweep.runs("hour" if is_large else None)
    rows = (FINDINGS / "results" / f"{path.stem}.csv").read_text().splitlines()[1:]
    assert len(rows) == len(planned)


def test_the_scenario_of_the_breakdowns_is_valid() -> None:
    assert Scenario.load(FINDINGS / "scenarios" / "breakdown.toml").adversary


def test_tables_are_those_of_the_results(module) -> None:
    assert (FINDINGS / "TABLES.md").read_text() == module("draw").tables()


def test_every_figure_can_be_drawn_and_is_in_the_text(module) -> None:
    mpl.use("agg")
    text = (FINDINGS / "README.md").read_text()
    for name, draw in module("draw").FIGURES.items():
        plt.close(draw())
        assert f"figures/{name}.png" in text
        assert (FINDINGS / "figures" / f"{name}.png").exists()


def test_results_are_collected_from_the_runs(module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect = module("collect")
    monkeypatch.setattr(collect, "RESULTS", tmp_path / "results")
    run_small("loss", tmp_path)
    (found,) = [collect.collect(plan.parent) for plan in tmp_path.glob("*/sweep.json")]
    head, *rows = found.read_text().splitlines()
    assert {"seed", "accuracy", "worst", "simulated_s"} <= set(head.split(","))
    assert len(rows) == len(Sweep.load(ROOT / "analysis" / "scenarios" / "loss.toml").runs("tiny"))
