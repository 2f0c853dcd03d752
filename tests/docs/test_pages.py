"""Links between pages lead to files, and every generated page exists."""

import re
from pathlib import Path

import pytest

from docs.tools.build import GENERATED
from tests.docs.pages import PAGES, README, ROOT

TEXTS = [README, *PAGES, ROOT / "analysis" / "README.md"]
EVERY_TEXT = pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))


@EVERY_TEXT
def test_links_lead_to_files(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_generated_pages_are_pages() -> None:
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES} >= GENERATED.keys()
