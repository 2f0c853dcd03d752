import csv
import json
from pathlib import Path

import pytest

from rdpfl_sim.sweeps.plan import damaged_folders, missing_runs, plan_runs
from rdpfl_sim.sweeps.results import (
    folder_of,
    read_results,
    read_summary,
    write_csv,
)
from rdpfl_sim.sweeps.spec import SweepSpec
from tests.sweeps.sweeping import make_run

SWEEP = SweepSpec.from_dict(
    {
        "seeds": [1, 2],
        "base": {"rounds": 2},
        "grid": {"method.lambda": [0.1, 1.0]},
        "axis": [{"name": "attack_type", "cases": [{"label": "clean"}]}],
    }
)


def finished(tmp_path: Path) -> list:
    """Write fake runs: the score is lambda plus a tenth of the seed; one of four runs is missing."""
    runs = plan_runs(SWEEP)
    for run in runs[:-1]:
        folder = folder_of(run, tmp_path)
        folder.mkdir()
        score = run.scenario.method.lambda_ + run.scenario.seed / 10
        (folder / "summary.json").write_text(
            json.dumps({"schema": 2, "score": score, "deep": {"list": [1, 2]}})
        )
    return read_results(runs, tmp_path)


def test_results_file_has_one_row_per_run_with_every_parameter_and_metric(tmp_path: Path) -> None:
    write_csv(tmp_path / "results.csv", finished(tmp_path))
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert rows[0]["attack_type"] == "clean"
    assert (rows[0]["method.lambda"], rows[0]["scenario.method.lambda"]) == ("0.1", "0.1")
    assert rows[0]["scenario.timing.wait.name"] == "all"
    assert float(rows[1]["result.score"]) == pytest.approx(0.3)
    assert rows[0]["result.deep.list"] == "[1, 2]"


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
