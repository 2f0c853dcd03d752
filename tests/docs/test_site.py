"""The documentation site builds without a warning, opens offline, and has every page."""

import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.tools import build as site_builder
from rdpfl_sim.version import __version__
from tests.docs.pages import PAGES, ROOT
from tests.reports.browser import CHROMIUM, Browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    site_builder.build(folder)
    return folder


@pytest.mark.slow
def test_site_has_every_page_and_none_fetches_anything(site: Path) -> None:
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert pages >= {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in PAGES}
    fetched = re.compile(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link[^>]* href="(?:https?:)?//')
    assert [page for page in pages if fetched.search((site / page).read_text())] == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_site_opens_from_its_folder_and_its_search_finds_a_typed_word(site: Path) -> None:
    shadows = "[...document.querySelectorAll('*')].map(element => element.shadowRoot).filter(Boolean)"
    browser = Browser()
    try:
        browser.call("Page.navigate", url=(site / "index.html").as_uri())
        browser.wait_for(
            "document.readyState === 'complete' && !!document.querySelector('.md-search__button')"
        )
        browser.evaluate("document.querySelector('.md-search__button').click()")
        browser.wait_for(f"{shadows}.some(shadow => shadow.activeElement?.tagName === 'INPUT')")
        for index, letter in enumerate("barzilai", start=1):
            browser.press(letter)
            browser.wait_for(f"{shadows}.some(shadow => shadow.querySelector('ol li'))")
            [typed] = browser.evaluate(f"{shadows}.map(shadow => shadow.querySelector('input').value)")
            assert typed == "barzilai"[:index]
        browser.wait_for(f"{shadows}.some(shadow => shadow.textContent.includes('Barzilai'))")
        assert browser.errors == []
        assert browser.requests == []
    finally:
        browser.close()


def test_link_to_nowhere_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[nowhere](nowhere.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: trial\nnav: [index.md]\n")
    monkeypatch.setattr(site_builder, "ROOT", tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        site_builder.build(tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_link_out_of_the_docs_leads_to_a_copy_and_one_to_a_folder_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_builder, "ROOT", tmp_path)
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "a.toml").write_text("rounds = 1\n")
    (tmp_path / "docs" / "deep" / "page.md").write_text("[file](../../a.toml), [folder](../..)\n")
    site_builder.gather(tmp_path / "stage")
    assert (tmp_path / "stage/deep/page.md").read_text() == "[file](../files/a.toml.txt), folder\n"
    assert (tmp_path / "stage/files/a.toml.txt").read_text() == "rounds = 1\n"


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(leaves(navigation)) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES)


def test_every_page_is_in_the_folder_of_its_section() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    for title, content in (entry for section in navigation for entry in section.items()):
        folder = "." if isinstance(content, str) else title.lower()
        assert {str(Path(page).parent) for page in leaves(content)} == {folder}


def leaves(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    else:
        for branch in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(branch)


def test_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)  # what the format requires
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
    [paper] = citation["references"]
    text = " ".join((ROOT / "docs" / "understand" / "paper.md").read_text().split())
    assert ", ".join(author["family-names"] for author in paper["authors"]) in text
    assert paper["title"] in text
