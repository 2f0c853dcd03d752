from pathlib import Path

from rdpfl_sim.sweeps.results import folder_of
from rdpfl_sim.sweeps.runners.staging import staging_folder
from tests.sweeps.sweeping import make_run

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


def test_complete_run_gets_its_folder_unless_another_sweep_was_first(tmp_path: Path) -> None:
    for text in ('{"schema": 2, "run": "first"}', '{"schema": 2, "run": "second"}'):
        with staging_folder(tmp_path) as staging:
            write_run(staging.path_for(RUN), text)
            assert staging.finish(RUN, None) is None
            assert not staging.path_for(RUN).exists()
    folder = folder_of(RUN, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["summary.json"]
    assert (folder / "summary.json").read_text() == '{"schema": 2, "run": "first"}'


def test_complete_run_replaces_a_damaged_one(tmp_path: Path) -> None:
    write_run(tmp_path / "old", '{"half')
    folder_of(RUN, tmp_path).parent.mkdir()
    (tmp_path / "old" / "run").rename(folder_of(RUN, tmp_path))
    with staging_folder(tmp_path) as staging:
        write_run(staging.path_for(RUN), '{"schema": 2, "run": "second"}')
        assert staging.finish(RUN, None) is None
        assert [path.name for path in staging.path.iterdir()] == ["lock"]
    assert (folder_of(RUN, tmp_path) / "summary.json").read_text() == '{"schema": 2, "run": "second"}'


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
