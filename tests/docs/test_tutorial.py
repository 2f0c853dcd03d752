"""The tutorial is executed, and every number in its text is one that its commands print."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import (
    ROOT,
    Session,
    blocks,
    is_near,
    missing_lines,
    missing_numbers,
    number_words,
    numbers,
    prose,
)

PAGE = ROOT / "docs" / "tutorial.md"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_examples_run_and_print_every_output_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    session = Session(tmp_path, monkeypatch, quick=False)
    session.start()
    session.run(PAGE)  # compares the shown outputs, too
    assert session.num_run >= 10
    titles = [block.title for block in blocks(PAGE.read_text()) if block.title]
    assert [title for title in titles if not (tmp_path / title).exists()] == []
    text = prose(PAGE.read_text()).replace("Python 3.11", "").replace("10 %", "0.1")
    scenario = (ROOT / "scenarios" / "ring_30pct.toml").read_text()
    found = [*numbers(text), *number_words(text)]
    assert len(found) >= 6
    assert missing_numbers(found, "\n".join([*session.printed, scenario])) == []
    check_attack(*session.printed[-2:])


def check_attack(installed: str, script: str) -> None:
    """Check that the installed attack and the script have the accuracy in the text."""
    [accuracy] = re.findall(r"falls to (0\.\d+)", PAGE.read_text())
    [printed] = numbers(script)
    assert is_near(accuracy, printed)
    assert missing_lines(f"  honest (7) {accuracy}...", installed) == []


def test_python_version_is_that_of_the_package() -> None:
    assert "Python 3.11 or later" in prose(PAGE.read_text())
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()
