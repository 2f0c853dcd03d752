"""The sweeps of the findings are valid, and figures and tables match the committed results."""

import csv
import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.plan import plan_runs
from rdpfl_sim.sweeps.spec import SweepSpec
from tests.docs.test_notebooks import run_small

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "analysis" / "findings"
SWEEPS = sorted(path for path in (FINDINGS / "scenarios").glob("*.toml") if path.stem != "breakdown")
PAPER = ("clean", "robustness", "ablation", "sensitivity", "ambiguities")
LARGE = [
    *(ROOT / "scenarios" / "paper" / f"{name}.toml" for name in PAPER),
    FINDINGS / "scenarios" / "lambda_cifar10.toml",
]
"""Sweeps on CIFAR-10, in the profile `hour`."""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch):
    """Import a module of the findings by name."""
    monkeypatch.syspath_prepend(str(FINDINGS))

    def load(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


def results_of(path: Path, labels: int) -> Counter[tuple[str, ...]]:
    """Return the number of results per case, by labels."""
    with (FINDINGS / "results" / f"{path.stem}.csv").open() as file:
        return Counter(tuple(row[:labels]) for row in list(csv.reader(file))[1:])


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted({*SWEEPS, *LARGE}), ids=lambda path: path.stem)
def test_every_run_of_a_sweep_has_its_result(path: Path) -> None:
    sweep = SweepSpec.load(path)
    planned = Counter(
        tuple(run.labels.values()) for run in plan_runs(sweep, "hour" if path in LARGE else None)
    )
    assert results_of(path, len(sweep.axes)) == planned


def test_the_scenario_of_the_breakdowns_is_valid() -> None:
    assert Scenario.load(FINDINGS / "scenarios" / "breakdown.toml").adversary


def test_tables_match_the_results(module) -> None:
    assert (FINDINGS / "TABLES.md").read_text() == module("draw").tables()


@pytest.mark.parametrize("name", ["clean", "robustness", "ablation", "sensitivity"])
def test_every_published_number_is_next_to_the_simulated_one(name: str) -> None:
    (layout,) = SweepSpec.load(ROOT / "scenarios" / "paper" / f"{name}.toml").table
    text = (FINDINGS / "TABLES.md").read_text()
    numbers = list(numbers_in(layout.paper))
    assert len(numbers) >= 8
    for number, times in Counter(numbers).items():
        assert text.count(f" ({number:.4f})") >= times


def numbers_in(paper: dict) -> Iterator[float]:
    """Yield the numbers in a table of published numbers."""
    for value in paper.values():
        yield from numbers_in(value) if isinstance(value, dict) else [value]


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
    assert len(rows) == len(plan_runs(SweepSpec.load(ROOT / "analysis" / "scenarios" / "loss.toml"), "tiny"))
