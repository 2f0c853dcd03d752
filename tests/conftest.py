"""Shared fixtures. Hypothesis draws the same examples in every run, unless the profile is `explore`."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.packages import Packages

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile("repeatable")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Warn if digests could not be compared."""
    from tests.pinned.cases import VERSION, pins  # imports torch

    if pins() is None:
        terminalreporter.section("digests")
        terminalreporter.line(
            f"WARNING: no pins for torch {VERSION}: tests of digests were skipped, and the digests and last "
            "digits of the documentation were not compared. Write pins with: python -m tests.pinned.cases "
            "and python -m tests.pinned.building_blocks",
            yellow=True,
        )


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Handle SIGINT here and in child processes, also if the shell started the tests with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    """A folder on the import path into which a test installs packages."""
    (tmp_path / "packages").mkdir()
    installed = Packages(tmp_path / "packages", monkeypatch)
    yield installed
    installed.forget()
