"""Every page is short, plain and starts with an example."""

import re
from pathlib import Path

import pytest

from docs.tools.build import GENERATED, MARK
from tests.docs.pages import EVERY_PAGE, PAGES, README, ROOT, blocks, numbers, prose, sentences

TEXTS = [README, *PAGES, ROOT / "analysis" / "README.md"]
EVERY_TEXT = pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
AVOIDED = re.compile(
    r"\b(?:liars?|lies|lying|whoever|somebody|nobody|everybody|training alone|had better|tells?)\b",
    flags=re.IGNORECASE,
)


def written(path: Path) -> str:
    """Return the part of a page that is not generated."""
    return path.read_text().partition(MARK)[0]


def test_readme_has_at_most_150_lines() -> None:
    assert len(README.read_text().splitlines()) <= 150


@EVERY_TEXT
def test_lines_have_at_most_100_characters(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("|", "!["))]
    assert [line for line in lines if len(line) > 100] == []


@EVERY_TEXT
def test_sentences_have_at_most_two_numbers(path: Path) -> None:
    assert [found for found in sentences(prose(written(path))) if len(numbers(found)) > 2] == []


def test_numbers_of_sentences_are_counted() -> None:
    text = "# 1 of 2\n\nTwo `3` and 4.5, [6](7.md) of 8 %.\n- 9 more\n- 10\n\n| 11 |\n```sh\n12\n```\n"
    assert [numbers(found) for found in sentences(prose(text)) if found] == [["4.5", "6", "8"], ["9"], ["10"]]


@EVERY_TEXT
def test_text_is_plain(path: Path) -> None:
    assert AVOIDED.findall(prose(written(path))) == []


@EVERY_TEXT
def test_lines_of_a_quotation_are_not_joined(path: Path) -> None:
    quoted = [line for line in path.read_text().splitlines() if line.startswith("> ")]
    assert [line for line in quoted if " > " in line] == []


@EVERY_PAGE
def test_page_starts_with_an_example(page: Path) -> None:
    start = page.read_text().partition("\n## ")[0]
    assert {block.language for block in blocks(start)} & {"sh", "toml", "python"}


@EVERY_TEXT
def test_links_lead_to_files(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_generated_pages_are_pages() -> None:
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES} >= GENERATED.keys()
