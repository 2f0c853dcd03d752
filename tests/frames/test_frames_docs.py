"""The examples of docs/analysis.md print the output that the page shows."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_examples_print_the_documented_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(str(ROOT / "docs" / "analysis.md"), module_relative=False)
    assert results.attempted >= 8
    assert results.failed == 0
