import csv
import json
from pathlib import Path

import pytest

from rdpfl_sim.sweeps.plan import plan_runs
from rdpfl_sim.sweeps.results import read_results, write_csv
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.summaries import folder_of

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
