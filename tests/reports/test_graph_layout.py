import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rdpfl_sim.reports.figures import graph_layout


def test_ring_is_a_circle_in_the_order_of_its_links() -> None:
    order = [0, 3, 1, 4, 2]
    xy = graph_layout(nx.cycle_graph(order))
    sides = [np.linalg.norm(xy[a] - xy[b]) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    np.testing.assert_allclose(sides, sides[0])
    np.testing.assert_allclose(np.linalg.norm(xy - xy.mean(axis=0), axis=1).std(), 0, atol=1e-9)
    assert xy[0, 1] == xy[:, 1].max()


def test_grid_is_a_rectangle_filled_row_by_row() -> None:
    xy = graph_layout(nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4)))
    columns, rows = np.unique(xy[:, 0].round(9)), np.unique(xy[:, 1].round(9))
    assert (len(columns), len(rows)) == (4, 3)
    np.testing.assert_allclose(xy[5], [columns[1], rows[1]])
    np.testing.assert_allclose(xy[3], [columns[3], rows[2]])


def test_a_line_is_horizontal_and_the_hub_of_a_star_is_its_centre() -> None:
    assert np.ptp(graph_layout(nx.path_graph(7))[:, 1]) == 0
    star = graph_layout(nx.star_graph(200))
    np.testing.assert_allclose(star[0], star[1:].mean(axis=0))


def test_components_do_not_overlap() -> None:
    graph = nx.disjoint_union_all(
        [nx.cycle_graph(9), nx.barbell_graph(4, 1), nx.path_graph(3), nx.empty_graph(5)]
    )
    xy = graph_layout(graph)
    boxes = [(xy[list(c)].min(axis=0), xy[list(c)].max(axis=0)) for c in nx.connected_components(graph)]
    for i, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[i + 1 :]:
            assert (low > other_high).any() or (other_low > high).any()


def test_large_graph_is_laid_out_by_distance() -> None:
    graph = nx.circular_ladder_graph(400)  # too large for Kamada-Kawai
    xy = graph_layout(graph)
    assert len(np.unique(xy, axis=0)) == 800
    near = np.linalg.norm(xy[0] - xy[400])
    assert near < np.linalg.norm(xy[0] - xy[100]) < np.linalg.norm(xy[0] - xy[200])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 25), st.floats(0, 1), st.integers(0, 1000))
def test_every_client_has_a_position_that_does_not_change(num_clients: int, p: float, seed: int) -> None:
    graph = nx.gnp_random_graph(num_clients, p, seed=seed)
    xy = graph_layout(graph)
    assert np.isfinite(xy).all()
    assert len(np.unique(xy, axis=0)) == num_clients
    np.testing.assert_array_equal(xy, graph_layout(graph.copy()))
