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
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.image import imread

from rdpfl_sim.reports import figures
from rdpfl_sim.reports.figures import Curve, curves_figure, draw, latest, layout, outnumbered, read_curves

COLUMNS = "time_s,client,byzantine,round,personal_accuracy,personal_loss,global_accuracy,global_loss\n"
TITLE = ("name", "facts")


def curve(time_s: list[float], accuracy: list[float]) -> Curve:
    return Curve(np.array(time_s), np.arange(len(time_s), dtype=float), np.array(accuracy))


def write_metrics(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    with path.open("w", newline="") as file:
        file.write(COLUMNS)
        csv.writer(file).writerows(rows)
    return path


def write_run(
    run: Path, graph: nx.Graph, byzantine: set[int], accuracy: float | str = 0.5, **summary: str
) -> Path:
    topology = {"num_clients": len(graph), "edges": list(graph.edges), "byzantine": sorted(byzantine)}
    (run / "topology.json").write_text(json.dumps(topology))
    (run / "summary.json").write_text(json.dumps({"name": "run", "method": "rdpfl"} | summary))
    rows = [
        (1.5 * t + c, c, int(c in byzantine), t, accuracy, "inf", "", "") for t in range(3) for c in graph
    ]
    write_metrics(run / "metrics.csv", rows if accuracy != "never" else [])
    return run


def test_a_run_gets_two_whole_pictures_and_no_other_file(tmp_path: Path) -> None:
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


def test_a_run_that_was_cut_short_is_called_after_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path, nx.path_graph(3), set())
    (run / "summary.json").unlink()
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    draw(run)
    for figure in drawn:
        assert run.name in [text.get_text().strip() for text in figure.texts]


def test_a_name_is_not_read_as_mathematics(tmp_path: Path) -> None:
    run = write_run(tmp_path, nx.path_graph(3), set(), name=r"$\frac{ $" + "long " * 100)
    assert len(draw(run)) == 2


def test_a_failed_drawing_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_evaluations_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    rows = [
        (0.0, 0, 0, 0, 0.1, "inf", "", ""),
        (0.5, 1, 1, 0, 0.2, 1.0, "", ""),
        (1.0, 0, 0, 2, "nan", "nan", "", ""),
        (1.5, 0, 0, 4, "", "", "", ""),
        (2.0, 0, 0, 6, 0.3, 1.0, 0.1, 1.0),
        (2.5, 2, 0, 6, "inf", 1.0, 0.1, 1.0),
    ]
    honest, byzantine = read_curves(write_metrics(tmp_path / "metrics.csv", rows))
    assert list(honest) == [0]
    assert [list(values) for values in honest[0]] == [[0.0, 2.0], [0.0, 6.0], [0.1, 0.3]]
    assert [list(values) for values in byzantine[1]] == [[0.5], [0.0], [0.2]]


def test_latest_value_holds_until_the_next_and_after_the_last() -> None:
    curves = {3: curve([0.0, 2.0], [0.1, 0.5]), 8: curve([1.0, 3.0, 4.0], [0.2, 0.4, 0.6])}
    x, values = latest(curves, "time_s")
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    np.testing.assert_array_equal(values, [[0.1, 0.1, 0.5, 0.5, 0.5], [np.nan, 0.2, 0.2, 0.4, 0.6]])


def test_number_of_points_is_bounded() -> None:
    times = np.arange(5000) / 7
    x, values = latest({0: Curve(times, times, times)}, "time_s")
    assert values.shape == (1, figures.MAX_POINTS)
    assert (x[0], x[-1], values[0, -1]) == (times[0], times[-1], times[-1])


def lines(figure: Figure, panel: int, colour: str) -> list[Any]:
    return [line for line in figure.axes[panel].lines if line.get_color() == colour]


def test_bold_line_is_the_mean_of_the_honest_clients_latest_values() -> None:
    honest = {0: curve([0.0, 2.0], [0.1, 0.5]), 1: curve([0.0, 3.0], [0.3, 0.7])}
    figure = curves_figure(honest, {2: curve([0.0, 1.0], [0.9, 0.9])}, TITLE)
    by_round, by_time = (
        max(lines(figure, panel, figures.HONEST), key=lambda line: line.get_lw()) for panel in (0, 1)
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
    figure = curves_figure(clients, byzantine, TITLE)
    assert len(lines(figure, 0, figures.HONEST)) == honest_lines
    assert len(lines(figure, 1, figures.BYZANTINE)) == byzantine_lines
    assert all(line.get_linestyle() == "--" for line in lines(figure, 1, figures.BYZANTINE))


def test_half_of_the_neighbours_is_enough_to_be_outnumbered() -> None:
    graph = nx.Graph([(0, 1), (1, 2), (2, 3), (2, 4), (4, 5)])
    graph.add_node(6)  # no neighbours: nobody outnumbers it
    assert outnumbered(graph, {0, 5}) == [1, 4]


def test_ring_is_a_circle_in_the_order_of_its_links() -> None:
    order = [0, 3, 1, 4, 2]
    places = layout(nx.cycle_graph(order))
    sides = [np.linalg.norm(places[a] - places[b]) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    np.testing.assert_allclose(sides, sides[0])
    np.testing.assert_allclose(np.linalg.norm(places - places.mean(axis=0), axis=1).std(), 0, atol=1e-9)
    assert places[0, 1] == places[:, 1].max()


def test_grid_is_a_rectangle_filled_row_by_row() -> None:
    places = layout(nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4)))
    columns, rows = np.unique(places[:, 0].round(9)), np.unique(places[:, 1].round(9))
    assert (len(columns), len(rows)) == (4, 3)
    np.testing.assert_allclose(places[5], [columns[1], rows[1]])
    np.testing.assert_allclose(places[3], [columns[3], rows[2]])


def test_line_is_level_and_hub_of_a_star_is_its_centre() -> None:
    assert np.ptp(layout(nx.path_graph(7))[:, 1]) == 0
    star = layout(nx.star_graph(200))
    np.testing.assert_allclose(star[0], star[1:].mean(axis=0))


def test_components_do_not_overlap() -> None:
    graph = nx.disjoint_union_all(
        [nx.cycle_graph(9), nx.barbell_graph(4, 1), nx.path_graph(3), nx.empty_graph(5)]
    )
    places = layout(graph)
    boxes = [
        (places[list(c)].min(axis=0), places[list(c)].max(axis=0)) for c in nx.connected_components(graph)
    ]
    for i, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[i + 1 :]:
            assert (low > other_high).any() or (other_low > high).any()


def test_large_graph_is_laid_out_by_distance() -> None:
    graph = nx.circular_ladder_graph(400)  # too large for Kamada-Kawai
    places = layout(graph)
    assert len(np.unique(places, axis=0)) == 800
    near = np.linalg.norm(places[0] - places[400])
    assert near < np.linalg.norm(places[0] - places[100]) < np.linalg.norm(places[0] - places[200])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 25), st.floats(0, 1), st.integers(0, 1000))
def test_every_client_has_a_place_that_does_not_change(num_clients: int, p: float, seed: int) -> None:
    graph = nx.gnp_random_graph(num_clients, p, seed=seed)
    places = layout(graph)
    assert np.isfinite(places).all()
    assert len(np.unique(places, axis=0)) == num_clients
    np.testing.assert_array_equal(places, layout(graph.copy()))
