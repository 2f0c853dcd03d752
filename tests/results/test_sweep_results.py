import csv
import json
from pathlib import Path

import pytest

from rdpfl_sim.records.metrics import STATISTICS
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.records.summary import METRIC_NAMES
from rdpfl_sim.results import Sweep
from rdpfl_sim.results.sweep import SweepRun, run_folders
from rdpfl_sim.results.tables import MAX_COLUMNS, write_csv
from rdpfl_sim.sweeps.plan import damaged_folders, missing_runs, write_plan
from rdpfl_sim.sweeps.runner import folder_of, read_summary
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from tests.results.run_folders import write_run
from tests.sweeps.sweeping import make_run

SWEEP = SweepSpec.from_dict(
    {
        "seeds": [1, 2],
        "base": {"rounds": 2},
        "grid": {"method.lambda": [0.1, 1.0]},
        "axis": [{"name": "attack_type", "cases": [{"label": "clean"}]}],
    }
)


def finished(output: Path, **summary: object) -> list[SweepRun]:
    """Write fake runs: the score is lambda plus a tenth of the seed; one of four runs is missing."""
    runs = plan_runs(SWEEP)
    write_plan(output, SWEEP, "sweep", runs)
    for run in runs[:-1]:
        score = run.scenario.method.lambda_ + run.scenario.seed / 10
        content = {"score": score, "deep": {"list": [1, 2]}, **summary}
        write_run(folder_of(run, output), (), content, run.scenario.to_dict())
    return Sweep(output).runs


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_results_file_has_one_row_per_run_with_every_parameter_and_metric(tmp_path: Path) -> None:
    num_columns, num_omitted = write_csv(tmp_path / "results.csv", finished(tmp_path))
    rows = read_rows(tmp_path / "results.csv")
    assert (num_columns, num_omitted) == (len(rows[0]), 0)
    assert len(rows) == 3
    assert rows[0]["attack_type"] == "clean"
    assert (rows[0]["method.lambda"], rows[0]["scenario.method.lambda"]) == ("0.1", "0.1")
    assert rows[0]["scenario.timing.wait.name"] == "all"
    assert float(rows[1]["result.score"]) == pytest.approx(0.3)
    assert rows[0]["result.deep.list"] == "[1, 2]"


def test_results_file_has_at_most_60_columns_by_default_the_most_important_ones(tmp_path: Path) -> None:
    names = {path: 1 for path in METRIC_NAMES if path not in ("schema", "seed")}
    results = finished(tmp_path, **names, status="finished", digest="0" * 16)
    every, chosen = tmp_path / "all.csv", tmp_path / "results.csv"
    write_csv(every, results)
    all_rows = read_rows(every)
    metrics = ["telemetry.age.N", "score"]
    num_columns, num_omitted = write_csv(chosen, results, [*metrics, "absent"])
    rows = read_rows(chosen)
    assert num_columns == len(rows[0]) <= MAX_COLUMNS == 60
    assert num_omitted == len(all_rows[0]) - len(rows[0]) > 60
    assert [*rows[0]] == [key for key in all_rows[0] if key in rows[0]]  # in the same order
    assert rows == [{key: row[key] for key in rows[0]} for row in all_rows]
    personal = (f"result.{statistic.path}" for statistic in STATISTICS)
    labels = ["run", "attack_type", "method.lambda", "scenario.seed", "scenario.method.lambda"]
    assert {*labels, *personal, *(f"result.{path}" for path in metrics)} <= rows[0].keys()
    assert {"result.status", "result.messages.sent", "result.simulated_s", "result.digest"} <= rows[0].keys()
    assert "scenario.rounds" not in rows[0]  # equal in all runs


def test_results_file_with_many_settings_that_vary_has_at_most_60_columns(tmp_path: Path) -> None:
    deep = {f"part_{number}": 1 for number in range(100)}
    runs = finished(tmp_path, status="finished", deep=deep)
    write_csv(tmp_path / "results.csv", runs, [f"deep.{path}" for path in deep])
    assert len(read_rows(tmp_path / "results.csv")[0]) == 60


def test_run_folders_stand_apart_from_the_results(tmp_path: Path) -> None:
    beside, planned = tmp_path / "loose", folder_of(make_run(1), tmp_path)
    for folder in (beside, planned, tmp_path / "runs" / ".hidden"):
        folder.mkdir(parents=True)
        (folder / "scenario.toml").touch()
    assert planned == tmp_path / "runs" / make_run(1).key
    assert run_folders(tmp_path) == [beside, planned]


SUMMARY = json.dumps({"schema": SCHEMA, "status": "finished"})


def test_run_without_a_summary_is_missing_each_scenario_once(tmp_path: Path) -> None:
    complete, other, empty = make_run(1), make_run(2), make_run(3)
    for run in (complete, empty):
        folder_of(run, tmp_path).mkdir(parents=True)
    (folder_of(complete, tmp_path) / "summary.json").write_text(SUMMARY)
    assert read_summary(complete, tmp_path) == json.loads(SUMMARY)
    assert missing_runs([complete, other, other, empty], tmp_path) == [other, empty]
    assert damaged_folders([other, empty], tmp_path) == [folder_of(empty, tmp_path)]


@pytest.mark.parametrize("content", [b"", SUMMARY[:-1].encode(), b"\xff", b"null", b"{}", b"[1]"])
def test_run_with_a_damaged_summary_is_missing(tmp_path: Path, content: bytes) -> None:
    run = make_run(1)
    folder_of(run, tmp_path).mkdir(parents=True)
    (folder_of(run, tmp_path) / "summary.json").write_bytes(content)
    assert missing_runs([run], tmp_path) == [run]
