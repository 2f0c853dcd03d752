"""The examples of every page run."""

import doctest
import re
from pathlib import Path

import pytest

from rdpfl_sim import Scenario
from rdpfl_sim.simulation.deployment import Deployment
from tests.docs.pages import PAGES, ROOT, Session, blocks

SHORTENED = [page for page in PAGES if page.stem != "tutorial"]  # test_tutorial.py runs it in full
DOCTESTS = [page for page in PAGES if ">>>" in page.read_text()]


@pytest.mark.slow
@pytest.mark.timeout(600)  # sweeps start processes
@pytest.mark.parametrize("page", SHORTENED, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(tmp_path, monkeypatch)
    session.start()
    session.run(page)
    assert session.num_run or any(">>>" in block.text for block in blocks(page.read_text()))


def test_recipes_show_their_figures() -> None:
    text = (ROOT / "docs" / "experiments" / "analysis.md").read_text()
    saved = re.findall(r'savefig\("(\w+\.png)"', text)
    assert len(saved) == 2
    assert "join_asof" in text
    for name in saved:
        assert f'src="../images/{name}"' in text
        assert (ROOT / "docs" / "images" / name).stat().st_size < 100_000


def test_aggregator_guide_uses_graphs_with_at_least_four_neighbours() -> None:
    page = ROOT / "docs" / "extend" / "aggregator.md"
    shown = [block.text for block in blocks(page.read_text()) if "ring_30pct" in block.text]
    assert len(shown) == 3
    graphs = [re.search(r"topology=\{[^}]*\}|\[graph, ", text) for text in shown]
    assert None not in graphs
    first = graphs[0]
    assert first is not None
    deployment = Deployment(Scenario.load(ROOT / "scenarios" / "ring_30pct.toml", [first[0]]))
    assert min(map(len, deployment.neighbours)) >= 4


@pytest.mark.parametrize("page", DOCTESTS, ids=lambda page: page.stem)
def test_examples_print_the_shown_output(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(str(page), module_relative=False)
    assert results.attempted >= 8
    assert results.failed == 0
