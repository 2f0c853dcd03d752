"""The figures of a sweep's tables: lines, points or a heat map, one metric each."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim.reports.sweep_figures import draw_sweep_figures, metric_figure
from rdpfl_sim.results import Sweep
from rdpfl_sim.results.tables import TableLayout
from tests.results.run_folders import SCENARIO, write_run
from tests.results.test_charts import write_loss_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return Sweep(write_loss_sweep(tmp_path_factory.mktemp("sweep")))


def layout(**keys: Any) -> TableLayout:
    return TableLayout.model_validate({"metrics": {"Score": "score"}, **keys})


LOSS = "network.loss.probability"


def test_numeric_axis_is_drawn_as_lines_per_method(sweep: Sweep) -> None:
    figure = metric_figure(sweep, layout(where={"attack": "none"}), "Score")
    assert figure is not None
    [axes] = figure.axes
    assert len(axes.images) == 0
    assert axes.get_xlabel() == "Probability that a message is lost"
    assert [list(line.get_xdata()) for line in axes.lines] == [[0.0, 0.25, 0.5]] * 2


@pytest.mark.parametrize("columns", [["attack"], []])
def test_two_axes_of_categories_are_a_heat_map_with_a_labelled_scale(
    sweep: Sweep, columns: list[str]
) -> None:
    chosen = layout(columns=columns, where={LOSS: "0.25"})
    figure = metric_figure(sweep, chosen, "Score")
    assert figure is not None
    axes, scale = figure.axes
    assert len(axes.images) == 1
    assert {axes.get_xlabel(), axes.get_ylabel()} == {"Method", "Attack"}
    assert scale.get_ylabel() == "Score"
    assert len(axes.texts) == 4


def test_one_axis_of_categories_is_drawn_as_points(sweep: Sweep) -> None:
    figure = metric_figure(sweep, layout(where={LOSS: "0.25", "attack": "none"}), "Score")
    assert figure is not None
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["local", "rdpfl"]


def test_table_with_one_value_has_no_figure(sweep: Sweep) -> None:
    fixed = layout(where={LOSS: "0.25", "attack": "none", "Method": "local"})
    assert metric_figure(sweep, fixed, "Score") is None


def test_every_metric_has_its_files(tmp_path: Path) -> None:
    runs = [{"folder": f"{n}", "labels": {"rounds": f"{n}"}} for n in (2, 3)]
    tables = [{"metrics": {"Score": "score"}}, {"metrics": {"Score": "score", "Time (s)": "simulated_s"}}]
    plan = {"axes": [{"name": "rounds", "labels": ["2", "3"]}], "runs": runs, "tables": tables}
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    for n in (2, 3):
        write_run(tmp_path / f"{n}", (), {"score": n, "simulated_s": n}, {**SCENARIO, "rounds": n})
    paths = draw_sweep_figures(Sweep(tmp_path))
    stems = ["table-1", "table-2-Score", "table-2-Time_s"]
    assert [path.name for path in paths] == [f"{stem}{end}" for stem in stems for end in (".png", ".pdf")]
    assert all(path.stat().st_size > 1000 for path in paths)
