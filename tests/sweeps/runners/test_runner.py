import os
from pathlib import Path

import pytest

from rdpfl_sim.sweeps.runners import runner as module
from rdpfl_sim.sweeps.runners.runner import LOG, run_one
from tests.support import small_scenario

RAW = small_scenario(rounds=2).to_dict()


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.fixture(autouse=True)
def every_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORT_EVERY_S", 0.0)


def test_run_writes_its_folder_and_reports_its_progress(tmp_path: Path) -> None:
    fractions: list[float] = []
    assert run_one(RAW, tmp_path / "here", fractions.append) is None
    [folder] = [path for path in (tmp_path / "here").iterdir() if path.is_dir()]
    assert (folder / "summary.json").exists()
    assert fractions == [done / 12 for done in range(13)] + [1.0]


def test_output_and_traceback_go_to_the_log(tmp_path: Path, capfd) -> None:
    def report(fraction: float) -> None:
        os.write(1, b"one of these days\n")
        os.write(2, b"the disk will be full\n")
        raise ValueError("no space\nleft")

    assert run_one(RAW, tmp_path / "here", report) == "ValueError: no space; left"
    log = (tmp_path / "here" / LOG).read_text()
    assert log.startswith("one of these days\nthe disk will be full\nTraceback")
    assert log.endswith("ValueError: no space\nleft\n")
    os.write(1, b"later")
    assert capfd.readouterr() == ("later", "")


def test_invalid_scenario_is_an_error_in_one_line(tmp_path: Path) -> None:
    error = run_one({**RAW, "rounds": 0, "topology": {"name": "far"}}, tmp_path / "here", print)
    assert error is not None
    assert error.startswith("ScenarioError: rounds: must be >= 1 (given: 0); topo")


def test_error_whose_text_fails_is_reported_by_its_type(tmp_path: Path) -> None:
    class Scenario:
        def keys(self) -> None:
            raise UnprintableError

    assert str(run_one(Scenario(), tmp_path / "here", print)).startswith("UnprintableError: <")


def test_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert str(run_one(RAW, tmp_path / "file" / "here", print)).startswith("NotADirectoryError: ")
