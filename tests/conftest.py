"""The same examples in every run of the tests; `pytest --hypothesis-profile explore` looks for new ones."""

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
    """Let Ctrl-C work, here and in new processes, also where tests run in the background and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    """Somewhere to install packages."""
    (tmp_path / "packages").mkdir()
    installed = Packages(tmp_path / "packages", monkeypatch)
    yield installed
    installed.forget()
