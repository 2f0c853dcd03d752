import json
import os
from pathlib import Path

import pytest

from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.sweeps import runner as module
from rdpfl_sim.sweeps.runner import LOG, folder_of, run_one, staging_folder
from tests.support import small_scenario
from tests.sweeps.sweeping import make_run

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


# Folders of unfinished runs

RUN = make_run(1)


def write_run(folder: Path, text: str) -> None:
    (folder / "run").mkdir(parents=True)
    (folder / "log.txt").write_text("said")
    (folder / "run" / "summary.json").write_text(text)


def test_folders_of_dead_sweeps_are_removed_and_those_of_running_sweeps_are_kept(tmp_path: Path) -> None:
    write_run(tmp_path / ".running" / "dead", "old")
    with staging_folder(tmp_path) as first:
        assert not (tmp_path / ".running" / "dead").exists()
        write_run(first.path_for(RUN), "first")
        with staging_folder(tmp_path) as second:
            assert first.path_for(RUN).exists()
            assert second.path_for(RUN) != first.path_for(RUN)
        assert first.path.exists()
        assert not second.path.exists()
    assert [path.name for path in (tmp_path / ".running").iterdir()] == ["lock"]


FIRST, SECOND = (json.dumps({"schema": SCHEMA, "run": name}) for name in ("first", "second"))


def test_complete_run_gets_its_folder_unless_another_sweep_was_first(tmp_path: Path) -> None:
    for text in (FIRST, SECOND):
        with staging_folder(tmp_path) as staging:
            write_run(staging.path_for(RUN), text)
            assert staging.finish(RUN, None) is None
            assert not staging.path_for(RUN).exists()
    folder = folder_of(RUN, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["summary.json"]
    assert (folder / "summary.json").read_text() == FIRST


def test_complete_run_replaces_a_damaged_one(tmp_path: Path) -> None:
    write_run(tmp_path / "old", '{"half')
    folder_of(RUN, tmp_path).parent.mkdir()
    (tmp_path / "old" / "run").rename(folder_of(RUN, tmp_path))
    with staging_folder(tmp_path) as staging:
        write_run(staging.path_for(RUN), SECOND)
        assert staging.finish(RUN, None) is None
        assert [path.name for path in staging.path.iterdir()] == ["lock"]
    assert (folder_of(RUN, tmp_path) / "summary.json").read_text() == SECOND


def test_files_of_a_failed_run_are_kept_until_the_next_attempt(tmp_path: Path) -> None:
    failed = tmp_path / "failed" / RUN.key
    with staging_folder(tmp_path) as staging:
        for text in ("first", "second"):
            write_run(staging.path_for(RUN), text)
            assert staging.finish(RUN, "lost") == f"lost; its files are in {failed}"
            assert (failed / "run" / "summary.json").read_text() == text
            assert (failed / "log.txt").read_text() == "said"
        assert not folder_of(RUN, tmp_path).exists()
        write_run(staging.path_for(RUN), "third")
        staging.finish(RUN, None)
    assert not failed.exists()
    assert folder_of(RUN, tmp_path).exists()


def test_run_that_failed_before_it_started_leaves_no_files(tmp_path: Path) -> None:
    with staging_folder(tmp_path) as staging:
        assert staging.finish(RUN, "lost") == "lost"
    assert not (tmp_path / "failed").exists()
