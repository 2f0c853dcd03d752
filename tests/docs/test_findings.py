"""The findings: sweeps are valid; figures, tables and numbers in the pages are made from the results."""

import csv
import importlib
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from scipy.stats import ttest_rel  # type: ignore[import-untyped]

from rdpfl_sim.intervals import LEVEL, MeanInterval, paired_difference
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
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
TEMPLATES = sorted((FINDINGS / "templates").glob("*.md"))
PAGES = [FINDINGS / path.name for path in TEMPLATES]
SETTINGS = [
    ROOT / "analysis" / "setting.toml",
    *(FINDINGS / "scenarios").glob("*.toml"),
    *(ROOT / "scenarios" / "paper").glob("*.toml"),
]
NUMBER = re.compile(r"(?<![\w.,±-])\d(?:[\d,]*\d)?(?:\.\d+)?")
DEFINITIONS = {
    *(
        0.01,
        100 * LEVEL,
        0.05,
        0.85,
    ),  # a point, the intervals, the false discovery rate, the accuracy of timings
    0.82,  # most of the paper's cells, rounded
    round(1 / (sqrt(2) * 1.5 - 1), 2),  # the largest lambda of the guarantee, with c = 1.5 and the median
    *(1, 2, 3, 4, 5, 6),  # parts of the findings, seeds, numbers of clients and of bounds
    *(18, 21, 42),  # honest clients of 24, attacks in strengths.toml, percent: 10 of 24
}
"""Numbers of the text that are neither measured nor written in a scenario."""


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


def test_every_method_of_the_breakdowns_is_valid() -> None:
    overrides = re.findall(r"--set (method\S+)", (FINDINGS / "breakdowns.sh").read_text())
    scenario = FINDINGS / "scenarios" / "breakdown.toml"
    assert [Scenario.load(scenario, [one]).method.name for one in overrides] == ["anchored", "direct"]


def test_tables_match_the_results(module) -> None:
    assert (FINDINGS / "TABLES.md").read_text() == module("tables").tables()


def test_pages_match_the_templates_and_the_results(module) -> None:
    pages = module("templating").pages()
    assert "README.md" in pages
    for name, text in pages.items():
        assert (FINDINGS / name).read_text() == text, f"{name}: run analysis/findings/draw.py"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_number_that_a_page_does_not_take_from_the_results_is_a_setting(path: Path) -> None:
    text = re.sub(r"{{.*?}}|{%.*?%}", "", path.read_text(), flags=re.DOTALL)
    settings = {number for file in SETTINGS for number in numbers(file.read_text())}
    percentages = {round(100 * number, 9) for number in settings}
    typed = numbers(prose(text))
    assert len(typed) > 0
    assert typed - settings - percentages - DEFINITIONS == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_link_has_a_target(path: Path) -> None:
    links = re.findall(r"\]\((.+?)\)", path.read_text())
    assert links
    for file, _, anchor in (link.partition("#") for link in links):
        assert (FINDINGS / file).exists(), file
        if anchor:
            headings = re.findall(r"^#+ (.*)$", (FINDINGS / file).read_text(), flags=re.MULTILINE)
            assert anchor in [heading.lower().replace(" ", "-") for heading in headings]


def numbers(text: str) -> set[float]:
    """The numbers of a text; commas separate thousands."""
    return {float(number.replace(",", "")) for number in NUMBER.findall(text)}


def prose(text: str) -> str:
    """Markdown without headings, images, code and the targets of links."""
    text = re.sub(r"```[^`]*```|`[^`]*`|!\[.*?\]\(.*?\)", "", text)
    text = re.sub(r"^ {4}.*$|^#.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\]\(.*?\)", "]", text)


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


def test_every_figure_can_be_drawn_and_is_on_one_page(module) -> None:
    mpl.use("agg")
    text = "".join(path.read_text() for path in PAGES)
    figures = module("draw").FIGURES
    for name, draw in figures.items():
        plt.close(draw())
        assert text.count(f"(figures/{name}.png)") == 1
    assert {path.stem for path in (FINDINGS / "figures").iterdir()} == set(figures)


def test_no_two_methods_have_the_same_colour(module) -> None:
    colours = module("colours")
    assert len(set(colours.COLOURS.values())) == len(colours.COLOURS)
    assert set(colours.VARIANTS.values()) <= set(colours.COLOURS)


def test_p_values_are_those_of_the_paired_t_test_and_corrected_for_their_number(module) -> None:
    rows = module("rows")
    values, baseline = [0.5, 0.7, 0.6, 0.9], [0.4, 0.5, 0.6, 0.6]
    difference = paired_difference(dict(enumerate(values)), dict(enumerate(baseline)))
    assert rows.p_value(difference) == pytest.approx(float(ttest_rel(values, baseline).pvalue))
    # Benjamini and Hochberg by hand: p times the number of comparisons over its rank
    found = [rows.p_value(e) for e in (difference, MeanInterval(0.0, 1.0, 1.6, 4))]
    assert rows.adjusted_p_values([difference, MeanInterval(0.0, 1.0, 1.6, 4)]) == pytest.approx(
        [2 * found[0], 1.0]
    )


@pytest.mark.slow
def test_results_are_collected_and_repeated_runs_replace_their_rows(
    module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = module("collect")
    monkeypatch.setattr(collect, "RESULTS", tmp_path / "results")
    run_small("loss", tmp_path)
    (folder,) = [plan.parent for plan in tmp_path.glob("*/sweep.json")]
    path = collect.collect(folder)
    complete = path.read_text()
    head, first, *others = complete.splitlines()
    planned = plan_runs(SweepSpec.load(ROOT / "analysis" / "scenarios" / "loss.toml"), "tiny")
    assert {"seed", "accuracy", "worst", "simulated_s"} <= set(head.split(","))
    assert 1 + len(others) == len(planned)
    outdated = ",".join([*first.split(",")[: head.split(",").index("accuracy")], "0.123456"])
    commas = "," * (head.count(",") - outdated.count(","))
    path.write_text("\n".join([head, outdated + commas, *others[:-1]]) + "\n")
    collect.collect(folder)
    assert path.read_text() == complete
    shutil.rmtree(next((folder / "runs").iterdir()))
    collect.collect(folder)
    assert path.read_text() == complete
