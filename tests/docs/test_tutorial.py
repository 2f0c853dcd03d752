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
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """All examples of the tutorial, run as they are written."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("COLUMNS", "100")
        done = Session(tmp_path_factory.mktemp("tutorial"), monkeypatch, quick=False)
        done.start()
        done.run(PAGE)
    return done


def test_examples_run_and_print_the_shown_outputs(session: Session) -> None:
    shown = [block.text for block in blocks(PAGE.read_text()) if block.language == "text"]
    assert len(shown) == 2  # the session has compared them
    assert session.num_run >= 10


def test_numbers_in_the_text_are_printed(session: Session) -> None:
    text = prose(PAGE.read_text())
    assert "Python 3.11 or later" in text
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()
    text = text.replace("Python 3.11", "").replace("10 %", "0.1")
    scenario = (ROOT / "scenarios" / "ring_30pct.toml").read_text()
    printed = "\n".join([*session.printed, scenario])
    found = [*numbers(text), *number_words(text)]
    assert len(found) >= 6
    assert missing_numbers(found, printed) == []


def test_the_script_prints_the_accuracy_of_the_installed_attack(session: Session) -> None:
    [accuracy] = re.findall(r"falls to (0\.\d+)", PAGE.read_text())
    [printed] = numbers(session.printed[-1])
    assert is_near(accuracy, printed)
    assert missing_lines(f"  honest (7) {accuracy}...", session.printed[-2]) == []


def test_page_writes_the_files_that_it_names(session: Session) -> None:
    titles = [block.title for block in blocks(PAGE.read_text()) if block.title]
    assert titles
    assert all((session.folder / Path(title)).exists() for title in titles)
