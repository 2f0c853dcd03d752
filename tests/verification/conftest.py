"""Finished runs, which tests change to see whether it is reported."""

import shutil
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from tests.support import small_scenario
from tests.verification.changed_runs import LIVELY


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = simulate(
        small_scenario(**LIVELY, output={"models": "final"}), tmp_path_factory.mktemp("lively")
    ).folder
    assert folder is not None
    return folder


@pytest.fixture(scope="session")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every client waits for all neighbours."""
    folder = simulate(small_scenario(), tmp_path_factory.mktemp("patient")).folder
    assert folder is not None
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))
