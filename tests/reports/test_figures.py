from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import networkx as nx
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from rdpfl_sim.records.metrics import METRICS
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.reports import figures
from rdpfl_sim.reports.figure_style import BYZANTINE, HONEST
from rdpfl_sim.reports.figures import Curve, curves_figure, draw, topology_figure

TITLE = ("name", "description")
COLUMNS = (
    *("trained_time_s", "client", "byzantine", "round"),
    *("trained_personal_accuracy", "trained_personal_loss", "trained_global_accuracy", "trained_global_loss"),
)


def write_metrics(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, METRICS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(dict(zip(COLUMNS, row, strict=True)) for row in rows)
    return path


def write_run(
    run: Path, graph: nx.Graph, byzantine: set[int], accuracy: float | str = 0.5, **summary: str
) -> Path:
    topology = {"num_clients": len(graph), "edges": list(graph.edges), "byzantine": sorted(byzantine)}
    (run / "topology.json").write_text(json.dumps(topology))
    (run / "scenario.toml").write_text('evaluation.moments = "both"')
    (run / "summary.json").write_text(
        json.dumps({"schema": SCHEMA, "name": "run", "method": "rdpfl"} | summary)
    )
    rows = [
        (1.5 * t + c, c, int(c in byzantine), t, accuracy, "inf", "", "") for t in range(3) for c in graph
    ]
    write_metrics(run / "metrics.csv", rows if accuracy != "never" else [])
    return run


def test_a_run_gets_two_figures_and_no_other_file(tmp_path: Path) -> None:
    run = write_run(tmp_path, nx.cycle_graph(10), {1, 4, 7}, attack="sign_flip", topology="ring")
    before = set(run.iterdir())
    assert draw(run) == [run / "curves.png", run / "topology.png"]
    assert set(run.iterdir()) - before == {run / "curves.png", run / "topology.png"}
    assert imread(run / "curves.png").shape[:2] == (480, 1200)


@pytest.mark.parametrize(
    ("graph", "byzantine", "accuracy"),
    [
        (nx.empty_graph(1), set(), 0.5),
        (nx.path_graph(2), {1}, "never"),
        (nx.cycle_graph(4), {0, 1, 2, 3}, 0.5),
        (nx.disjoint_union(nx.cycle_graph(5), nx.empty_graph(3)), {6}, "nan"),
    ],
    ids=["alone", "never_evaluated", "all_byzantine", "disconnected_and_nan"],
)
@pytest.mark.filterwarnings("error")
def test_unusual_runs_are_drawn_without_a_warning(
    tmp_path: Path, graph: nx.Graph, byzantine: set[int], accuracy: float | str
) -> None:
    assert len(draw(write_run(tmp_path, graph, byzantine, accuracy))) == 2


def test_figures_of_an_unfinished_run_are_named_after_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path, nx.path_graph(3), set())
    (run / "summary.json").unlink()
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    draw(run)
    for figure in drawn:
        assert run.name in [text.get_text().strip() for text in figure.texts]


def test_a_name_is_not_interpreted_as_mathematics(tmp_path: Path) -> None:
    run = write_run(tmp_path, nx.path_graph(3), set(), name=r"$\frac{ $" + "long " * 100)
    assert len(draw(run)) == 2


def test_a_failure_keeps_the_old_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path, nx.path_graph(3), set())
    draw(run)
    old = (run / "curves.png").read_bytes()

    def fail(figure: Figure, file: BinaryIO, **options: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        draw(run)
    assert (run / "curves.png").read_bytes() == old


def test_drawing_does_not_import_pyplot() -> None:
    code = "import sys, rdpfl_sim.reports.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def curve(time_s: list[float], accuracy: list[float]) -> Curve:
    return Curve(np.array(time_s), np.arange(len(time_s), dtype=float), np.array(accuracy))


def lines(figure: Figure, panel: int, colour: str) -> list[Any]:
    return [line for line in figure.axes[panel].lines if line.get_color() == colour]


def test_bold_line_is_the_mean_of_the_latest_values_of_honest_clients() -> None:
    honest = {0: curve([0.0, 2.0], [0.1, 0.5]), 1: curve([0.0, 3.0], [0.3, 0.7])}
    figure = curves_figure(honest, {2: curve([0.0, 1.0], [0.9, 0.9])}, *TITLE)
    by_round, by_time = (
        max(lines(figure, panel, HONEST), key=lambda line: line.get_lw()) for panel in (0, 1)
    )
    np.testing.assert_allclose(by_round.get_xydata(), [[0, 0.2], [1, 0.6]])
    np.testing.assert_allclose(by_time.get_xydata(), [[0, 0.2], [2, 0.4], [3, 0.6]])
    assert by_time.get_drawstyle() == "steps-post"


@pytest.mark.parametrize(("num_honest", "honest_lines", "byzantine_lines"), [(9, 10, 3), (10, 1, 1)])
def test_each_client_has_a_line_unless_there_are_more_than_twelve(
    num_honest: int, honest_lines: int, byzantine_lines: int
) -> None:
    clients = {client: curve([0.0, 1.0], [0.1, 0.2]) for client in range(num_honest + 3)}
    byzantine = {client: clients.pop(client) for client in (0, 1, 2)}
    figure = curves_figure(clients, byzantine, *TITLE)
    assert len(lines(figure, 0, HONEST)) == honest_lines
    assert len(lines(figure, 1, BYZANTINE)) == byzantine_lines
    assert all(line.get_linestyle() == "--" for line in lines(figure, 1, BYZANTINE))


def test_legend_counts_honest_byzantine_and_outnumbered_clients() -> None:
    topology = {"num_clients": 5, "edges": list(nx.cycle_graph(5).edges), "byzantine": [2]}
    evaluated = {client: Curve(np.zeros(1), np.zeros(1), np.array([0.5 + client / 10])) for client in (0, 1)}
    figure = topology_figure(topology, evaluated, *TITLE)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "honest (2)",
        "honest, never evaluated (2)",
        "Byzantine (1)",
        "honest, at least half of its neighbours Byzantine (2)",
    ]
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["0", "1", "2", "3", "4"]
