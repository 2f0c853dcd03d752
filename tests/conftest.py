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
