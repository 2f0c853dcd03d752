"""Reports are readable: contrast of text, plurals and ordinals, and long words that wrap."""

import json
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.records.files import SUMMARY
from rdpfl_sim.reports.figure_style import INK, MUTED, contrast, text_colour
from rdpfl_sim.reports.html.page import HtmlTable, Page
from rdpfl_sim.reports.html.run_page import run_page
from rdpfl_sim.reports.html.sweep_page import sweep_page
from rdpfl_sim.reports.run_summary import summary_table
from rdpfl_sim.results import Run, Sweep
from tests.reports.browser import CHROMIUM, Browser
from tests.reports.rendering import rendered
from tests.results.run_folders import SCENARIO, write_run
from tests.support import small_scenario

READABLE = 4.5
"""The contrast ratio that WCAG 2 (AA) requires of text."""
ONE_OF_MANY = re.compile(r"(?<![\d.,])(?<!to )1 (?:(?!s\b|is\b|has\b|axis\b)\w+s|of [\d,]+ (?:\w+ )*have)\b")
WRONG_ORDINAL = re.compile(r"(?<!1)(?:1(?!st)|2(?!nd)|3(?!rd))(?:st|nd|rd|th)\b|1[123](?:st|nd|rd)\b")


def themes() -> Iterator[dict[str, str]]:
    css = files("rdpfl_sim.reports.html").joinpath("page.css").read_text()
    for block in re.findall(r":root[^{]*\{(.*?)\}", css, flags=re.DOTALL):
        yield dict(re.findall(r"--([\w-]+): (#\w+)", block))


@pytest.mark.parametrize("theme", [*themes()], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "muted", "honest", "byzantine", "accent"])
def test_text_of_the_page_has_enough_contrast(theme: dict[str, str], text: str) -> None:
    for ground in ("card", "ground", "soft") if text in ("ink", "muted") else ("card",):
        assert contrast(theme[text], theme[ground]) >= READABLE, (text, ground)


@pytest.mark.parametrize("theme", [*themes()], ids=["light", "dark"])
@pytest.mark.parametrize("kind", ["warn", "good", "bad"])
def test_messages_have_enough_contrast(theme: dict[str, str], kind: str) -> None:
    assert contrast(theme[kind], theme[f"{kind}-ground"]) >= READABLE


def test_numbers_on_colours_have_enough_contrast() -> None:
    for value in np.linspace(0, 1, 101):
        ground = mpl.colormaps["viridis"](value)
        assert contrast(text_colour(ground), ground) >= READABLE
    assert contrast(INK, "white") >= READABLE
    assert contrast(MUTED, "white") >= READABLE


def texts(page: Page) -> Iterator[str]:
    """Yield every sentence and number of a page that a reader sees without hovering, and hover texts."""
    yield from (page.facts, *page.warnings)
    for tile in page.tiles:
        yield f"{tile.value} {tile.detail}"
    for tab in page.tabs:
        for card in tab.cards:
            yield from (card.title, card.text, card.note, card.missing)
            if isinstance(card.content, HtmlTable) and tab.name not in ("Scenario", "Provenance"):
                yield from (cell for row in card.content.rows for cell in row)
            for plot in card.views.values():
                for trace in plot.traces:
                    yield str(trace.get("name", ""))
                    data = trace.get("customdata", ())
                    assert isinstance(data, list | tuple)
                    yield from map(str, data)


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One round of two clients with one link, one of them Byzantine, and one fault."""
    scenario = small_scenario(
        rounds=1,
        clients={"count": 2},
        data={"name": "synthetic", "shape": [8], "num_classes": 3, "num_train": 300, "num_test": 3},
        adversary={"ids": [1], "attack": "sign_flip"},
        timing={"wait": "none"},
        faults=[{"name": "link_outage", "links": [[0, 1]], "from_s": 0.5}],
    )
    folder = simulate(scenario, tmp_path_factory.mktemp("runs")).folder
    assert folder is not None
    return folder


def test_plurals_and_ordinals_of_the_smallest_run_are_right(smallest: Path) -> None:
    summary = json.loads((smallest / SUMMARY).read_text())
    found = [*texts(run_page(Run(smallest))), *rendered(summary_table(summary)), *summary["warnings"]]
    assert any("1 round" in text for text in found)
    assert any("1 change" in text for text in found)
    assert any("test set has 1" in text for text in found)
    assert any("1 of 1 honest client" in text for text in found)
    wrong = [text for text in found if ONE_OF_MANY.search(text) or WRONG_ORDINAL.search(text)]
    assert wrong == []


def test_plurals_of_the_smallest_sweep_are_right(smallest: Path, tmp_path: Path) -> None:
    plan = {
        "name": "one",
        "axes": [{"name": "rounds", "labels": ["1"]}],
        "runs": [{"folder": smallest.name, "labels": {"rounds": "1"}}],
    }
    shutil.copytree(smallest, tmp_path / smallest.name)
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    found = [*texts(sweep_page(Sweep(tmp_path)))]
    assert any("1 axis" in text for text in found)
    assert [text for text in found if ONE_OF_MANY.search(text) or WRONG_ORDINAL.search(text)] == []


@pytest.mark.parametrize(
    "text",
    ["1 links", "in 1 rounds", "1 of 2 honest clients have", "2th", "the 21th", "112nd", "11st", "3th"],
)
def test_the_patterns_find_mistakes(text: str) -> None:
    assert ONE_OF_MANY.search(text) or WRONG_ORDINAL.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "1 link",
        "11 links",
        "11 of 12 clients have",
        "1 of 2 clients has",
        "0.1 s",
        "2.1 links",
        "10th",
        "2nd",
        "21st",
        "12th",
        "111th",
    ],
)
def test_the_patterns_accept_what_is_right(text: str) -> None:
    assert not ONE_OF_MANY.search(text)
    assert not WRONG_ORDINAL.search(text)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1300, 420])
def test_long_labels_wrap_inside_their_boxes(tmp_path: Path, width: int) -> None:
    long = "long_label_without_a_space_" * 5
    runs = []
    for attack in ("a", "b"):
        for method in ("c", "d"):
            labels = {f"{long}attack": f"{long}{attack}", f"{long}method": f"{long}{method}"}
            name = f"{attack}{method}"
            summary = {"accuracy": {"honest": {"personal": {"mean": 0.5, "worst": 0.1}}}, "warnings": [long]}
            write_run(tmp_path / name, (), {"status": "finished", **summary}, SCENARIO)
            runs.append({"folder": name, "labels": labels})
    axes = [
        {"name": f"{long}attack", "labels": [f"{long}a", f"{long}b"]},
        {"name": f"{long}method", "labels": [f"{long}c", f"{long}d"]},
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"name": long, "axes": axes, "runs": runs}))
    assert main(["report", str(tmp_path)]) == 0
    browser = Browser()
    try:
        browser.show(tmp_path / "report.html", width, False)
        for tab in browser.evaluate(
            "[...document.querySelectorAll('[role=tab]')].map(tab => tab.id.slice(4))"
        ):
            browser.select_tab(tab)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            outside = browser.evaluate(
                "[...document.querySelectorAll('.tile, section:not([hidden]) .card')]"
                ".filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.innerText.slice(0, 60))"
            )
            assert outside == [], tab
    finally:
        browser.close()
