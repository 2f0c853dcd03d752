"""One entry of `STATISTICS` is enough for a metric to reach every report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rdpfl_sim import Sweep, simulate
from rdpfl_sim.files import read_json
from rdpfl_sim.records import metrics
from rdpfl_sim.records.metrics import STATISTICS, Statistic
from rdpfl_sim.reports.html.page import render
from rdpfl_sim.reports.html.sweep_page import sweep_page
from rdpfl_sim.reports.run_summary import summary_table
from rdpfl_sim.results.compare import compare, find_runs, group_runs
from rdpfl_sim.verification.verify import verify
from tests.reports.rendering import rendered
from tests.support import small_scenario

BEST = Statistic("best", "best", "best", lambda values: float(values.max()))
PATH = "accuracy.honest.personal.best"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two runs that were written with the new statistic."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "STATISTICS", (*STATISTICS, BEST))
        for method in ("rdpfl", "local"):
            simulate(small_scenario(name=method, method=method), folder)
    return folder


@pytest.fixture(autouse=True)
def with_new_statistic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "STATISTICS", (*STATISTICS, BEST))


def values(runs: Path) -> list[float]:
    """Return the accuracy of the best client of each run, from its metrics. All clients are honest."""
    found = []
    for run in Sweep(runs).runs:
        latest = {row["client"]: row for row in run.run.metrics.iter_rows(named=True)}
        found.append(max(row["trained_personal_accuracy"] for row in latest.values()))
    return found


def test_new_statistic_is_in_the_summary_and_verified(runs: Path) -> None:
    folders = [run.run.folder for run in Sweep(runs).runs]
    found = [read_json(folder / "summary.json")["accuracy"]["honest"]["personal"] for folder in folders]
    assert [list(each) for each in found] == [[statistic.key for statistic in (*STATISTICS, BEST)]] * 2
    assert [each["best"] for each in found] == values(runs)
    assert [check.name for check in verify(folders[0]) if check.outcome == "violated"] == []


def test_new_statistic_is_in_the_terminal_table_of_eighty_columns(runs: Path) -> None:
    summary = read_json(Sweep(runs).runs[0].run.folder / "summary.json")
    lines = rendered(summary_table(summary | {"num_clients": 5000}))
    head = next(line.split() for line in lines if line.split()[:1] == ["accuracy"])
    honest = next(line.split() for line in lines if line.split()[:1] == ["honest"])
    assert head[-3:] == ["best", "global", "mean"]
    assert honest[-2] == f"{values(runs)[0]:.3f}"


def test_new_statistic_is_in_tables_and_frames_of_a_sweep(runs: Path) -> None:
    sweep = Sweep(runs)
    assert sweep.results[PATH].to_list() == values(runs)
    (table,) = sweep.tables([{"metrics": {"best": PATH}}])
    assert [estimate.mean for estimate in table.cells.values()] == values(runs)
    page = render(sweep_page(sweep))
    assert re.search(r"<th[^>]*>best</th>", page)
    assert all(re.search(rf"<td[^>]*>{value:.4f}</td>", page) for value in values(runs))


def test_new_statistic_is_compared(runs: Path) -> None:
    comparison = compare(group_runs(find_runs([runs])))
    assert [path for path in comparison.metrics if ".personal." in path] == [
        statistic.path for statistic in (*STATISTICS, BEST)
    ]
    means = [cell.mean.mean for cell in comparison.metrics[PATH] if cell.mean is not None]
    assert sorted(means) == sorted(values(runs))
