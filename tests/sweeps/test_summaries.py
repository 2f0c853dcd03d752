from pathlib import Path

import pytest

from rdpfl_sim.sweeps.summaries import damaged_folders, folder_of, missing_runs, read_summary
from tests.sweeps.sweeping import make_run

SUMMARY = '{"schema": 2, "status": "finished"}'


def test_run_without_a_summary_is_missing_each_scenario_once(tmp_path: Path) -> None:
    complete, other, empty = make_run(1), make_run(2), make_run(3)
    for run in (complete, empty):
        folder_of(run, tmp_path).mkdir()
    (folder_of(complete, tmp_path) / "summary.json").write_text(SUMMARY)
    assert read_summary(complete, tmp_path) == {"schema": 2, "status": "finished"}
    assert missing_runs([complete, other, other, empty], tmp_path) == [other, empty]
    assert damaged_folders([other, empty], tmp_path) == [folder_of(empty, tmp_path)]


@pytest.mark.parametrize("content", [b"", SUMMARY[:-1].encode(), b"\xff", b"null", b"{}", b"[1]"])
def test_run_with_a_damaged_summary_is_missing(tmp_path: Path, content: bytes) -> None:
    run = make_run(1)
    folder_of(run, tmp_path).mkdir()
    (folder_of(run, tmp_path) / "summary.json").write_bytes(content)
    assert missing_runs([run], tmp_path) == [run]
