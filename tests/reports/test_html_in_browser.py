"""Reports in a real browser: no errors, no requests, and working tabs, views and hover texts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from tests.reports.browser import CHROMIUM, Browser
from tests.results.test_sweep import write_sweep
from tests.support import small_scenario

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]

FAULTY = {
    "adversary": {"fraction": 0.34, "attack": "sign_flip"},
    "network": {
        "latency": {"name": "exponential", "mean_s": 0.5},
        "loss": {"name": "bernoulli", "probability": 0.2},
    },
    "timing": {"wait": {"name": "quorum", "fraction": 0.5, "timeout_s": 1.0}},
    "faults": [
        {"name": "crash", "clients": [0], "at_s": 1.5, "recover_after_s": 0.5},
        {"name": "link_outage", "links": [[1, 2]], "from_s": 1.0, "until_s": 2.0},
        {"name": "partition", "sides": ["0..2", "3..5"], "from_s": 2.0, "until_s": 3.0},
    ],
}
TABS = "[...document.querySelectorAll('[role=tab]')].map(tab => tab.id.slice(4))"
ROWS = """(() => {
  const rows = {};
  for (const card of document.querySelectorAll("section:not([hidden]) .card")) {
    const box = card.getBoundingClientRect();
    rows[box.top] = (rows[box.top] ?? 0) + box.width + 16;
  }
  return Object.values(rows).map(Math.round);
})()"""
"""Widths of the rows of cards, with gaps."""
VISIBLE = "[...document.querySelectorAll('section:not([hidden])')].map(section => section.id)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = simulate(small_scenario(**FAULTY, rounds=6), tmp_path_factory.mktemp("runs")).folder
    assert main(["report", str(folder)]) == 0
    return folder / "report.html"


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (420, True)])
def test_every_tab_is_drawn_without_errors_or_requests(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.show(page, width, dark)
    tabs = browser.evaluate(TABS)
    assert len(tabs) == 9
    for tab in tabs:
        browser.select_tab(tab)
        assert browser.evaluate(VISIBLE) == [f"panel-{tab}"]
    assert browser.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('.plot .main-svg').length") > 10
    assert browser.errors == []
    assert browser.requests == []


def test_hover_text_describes_a_message(browser: Browser, page: Path) -> None:
    browser.show(page)
    browser.select_tab("messages")
    x, y = browser.evaluate("""(() => {
        const plot = document.querySelector('section:not([hidden]) .plot'), layout = plot._fullLayout;
        const index = plot.data.findIndex(trace => trace.name === 'used');
        plot.scrollIntoView({block: 'center', behavior: 'instant'});
        const box = plot.getBoundingClientRect(), trace = plot.data[index];
        return [box.left + layout.xaxis._offset + layout.xaxis.d2p(trace.x[1]),
                box.top + layout.yaxis._offset + layout.yaxis.d2p(trace.y[1])];
    })()""")
    browser.move_mouse(x - 1, y)
    browser.move_mouse(x, y)
    browser.wait_for("document.querySelector('section:not([hidden]) .hoverlayer .hovertext') !== null")
    text = browser.evaluate("document.querySelector('section:not([hidden]) .hoverlayer').textContent")
    assert "sent at" in text
    assert "used, age 0" in text
    assert browser.errors == []


def test_views_theme_and_arrow_keys_change_the_page(browser: Browser, page: Path) -> None:
    browser.show(page)
    title = "document.querySelector('section:not([hidden]) .xtitle').textContent"
    assert browser.evaluate(title) == "round"
    browser.evaluate("document.querySelectorAll('.choices button')[1].click()")
    browser.wait_for(f"{title} === 'simulated time (s)'")
    browser.evaluate("document.getElementById('theme').click()")
    browser.wait_for("document.documentElement.dataset.theme === 'dark'")
    browser.evaluate("""document.getElementById('tab-overview').dispatchEvent(
        new KeyboardEvent('keydown', {key: 'ArrowRight'}))""")
    assert browser.evaluate(VISIBLE) == ["panel-clients"]
    assert browser.evaluate("location.hash") == "#clients"
    assert browser.errors == []


def test_a_sweep_is_drawn_without_errors(browser: Browser, tmp_path: Path) -> None:
    assert main(["report", str(write_sweep(tmp_path))]) == 0
    browser.show(tmp_path / "report.html")
    for tab in browser.evaluate(TABS):
        browser.select_tab(tab)
    assert browser.errors == []


def test_text_from_files_is_never_executed(browser: Browser, tmp_path: Path) -> None:
    evil = "<script>document.title='evil'</script><img src=x onerror=\"document.title='evil'\"></script>"
    folder = simulate(small_scenario(**FAULTY, rounds=2), tmp_path).folder
    scenario = (folder / "scenario.toml").read_text().splitlines()
    named = [f"name = {json.dumps(evil)}" if line.startswith("name =") else line for line in scenario[:3]]
    (folder / "scenario.toml").write_text("\n".join([*named, *scenario[3:]]))
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"warnings": [evil], "method": evil}
    (folder / "summary.json").write_text(json.dumps(summary))
    events = (folder / "events.jsonl").read_text()
    (folder / "events.jsonl").write_text(events.replace('"reason":"loss"', f'"reason":{json.dumps(evil)}'))
    assert main(["report", str(folder)]) == 0
    browser.show(folder / "report.html")
    for tab in browser.evaluate(TABS):
        browser.select_tab(tab)
    assert browser.evaluate("document.title").startswith("<script>")
    assert browser.evaluate("document.querySelectorAll('img, a, iframe, object').length") == 0
    assert browser.errors == []
    assert browser.requests == []


def test_cards_fill_their_rows(browser: Browser, page: Path) -> None:
    browser.show(page, 1300, False)
    widths = []
    for tab in browser.evaluate(TABS):
        browser.select_tab(tab)
        widths += browser.evaluate(ROWS)
    assert len(set(widths)) == 1
