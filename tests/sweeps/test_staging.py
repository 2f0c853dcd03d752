from pathlib import Path

from rdpfl_sim.sweeps.runner import folder_of
from rdpfl_sim.sweeps.staging import scratch_in
from tests.sweeps.sweeping import make_run

RUN = make_run(1)


def written(place: Path, text: str) -> None:
    (place / "run").mkdir(parents=True)
    (place / "log.txt").write_text("said")
    (place / "run" / "summary.json").write_text(text)


def test_folders_of_dead_sweeps_are_removed_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    written(tmp_path / ".running" / "dead", "old")
    with scratch_in(tmp_path) as first:
        assert not (tmp_path / ".running" / "dead").exists()
        written(first.place_of(RUN), "first")
        with scratch_in(tmp_path) as second:
            assert first.place_of(RUN).exists()
            assert second.place_of(RUN) != first.place_of(RUN)
        assert first.path.exists()
        assert not second.path.exists()
    assert [path.name for path in (tmp_path / ".running").iterdir()] == ["lock"]


def test_complete_run_gets_its_name_unless_another_sweep_was_first(tmp_path: Path) -> None:
    for text in ('{"run": "first"}', '{"run": "second"}'):
        with scratch_in(tmp_path) as scratch:
            written(scratch.place_of(RUN), text)
            assert scratch.settle(RUN, None) is None
            assert not scratch.place_of(RUN).exists()
    folder = folder_of(RUN, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["summary.json"]
    assert (folder / "summary.json").read_text() == '{"run": "first"}'


def test_complete_run_takes_the_place_of_a_damaged_one(tmp_path: Path) -> None:
    written(tmp_path / "old", '{"half')
    (tmp_path / "old" / "run").rename(folder_of(RUN, tmp_path))
    with scratch_in(tmp_path) as scratch:
        written(scratch.place_of(RUN), '{"run": "second"}')
        assert scratch.settle(RUN, None) is None
        assert [path.name for path in scratch.path.iterdir()] == ["lock"]
    assert (folder_of(RUN, tmp_path) / "summary.json").read_text() == '{"run": "second"}'


def test_failed_run_keeps_its_records_until_the_next_attempt(tmp_path: Path) -> None:
    failed = tmp_path / "failed" / RUN.key
    with scratch_in(tmp_path) as scratch:
        for text in ("first", "second"):
            written(scratch.place_of(RUN), text)
            assert scratch.settle(RUN, "lost") == f"lost; what it left: {failed}"
            assert (failed / "run" / "summary.json").read_text() == text
            assert (failed / "log.txt").read_text() == "said"
        assert not folder_of(RUN, tmp_path).exists()
        written(scratch.place_of(RUN), "third")
        scratch.settle(RUN, None)
    assert not failed.exists()
    assert folder_of(RUN, tmp_path).exists()


def test_run_that_has_not_begun_leaves_nothing(tmp_path: Path) -> None:
    with scratch_in(tmp_path) as scratch:
        assert scratch.settle(RUN, "lost") == "lost"
    assert not (tmp_path / "failed").exists()
