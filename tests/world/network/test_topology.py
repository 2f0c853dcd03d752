import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.components.schema import OneOf
from rdpfl_sim.errors import OptionError
from rdpfl_sim.world.network import topology
from rdpfl_sim.world.network.topology import TOPOLOGIES, neighbours

GENERATED = sorted(set(TOPOLOGIES) - {"file"})
RANDOM = ["communities", "erdos_renyi", "k_regular", "scale_free", "small_world"]


def build(name: str, num_clients: int, seed: int = 0, **options: Any) -> nx.Graph:
    return TOPOLOGIES[name](num_clients, np.random.default_rng(seed), **options)


def edges(graph: nx.Graph) -> list[tuple[int, int]]:
    return sorted(tuple(sorted(edge)) for edge in graph.edges)


def assert_simple(graph: nx.Graph, num_clients: int) -> None:
    assert type(graph) is nx.Graph
    assert list(graph) == list(range(num_clients))
    assert all(type(client) is int for edge in graph.edges for client in edge)
    assert nx.number_of_selfloops(graph) == 0


def message(option: str, call: Callable[[], nx.Graph]) -> str:
    with pytest.raises(OptionError) as raised:
        call()
    assert raised.value.option == option
    return raised.value.message


@pytest.mark.parametrize("name", GENERATED)
@given(num_clients=st.integers(1, 24), seed=st.integers(0, 9))
def test_every_topology_is_a_simple_graph_over_the_clients_or_an_error_with_the_allowed_values(
    name, num_clients, seed
):
    smallest, option = {"k_regular": (5, "k"), "small_world": (5, "k"), "scale_free": (3, "m")}.get(
        name, (1, "")
    )
    if num_clients < smallest:
        assert str(num_clients) in message(option, lambda: build(name, num_clients, seed))
    else:
        assert_simple(build(name, num_clients, seed), num_clients)


@pytest.mark.parametrize(
    ("name", "num_clients", "options", "expected"),
    [
        ("complete", 4, {}, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
        ("ring", 4, {}, [(0, 1), (0, 3), (1, 2), (2, 3)]),
        ("line", 4, {}, [(0, 1), (1, 2), (2, 3)]),
        ("star", 4, {}, [(0, 1), (0, 2), (0, 3)]),
        ("grid", 6, {}, [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]),
        ("grid", 4, {"rows": 4}, [(0, 1), (1, 2), (2, 3)]),
        ("torus", 3, {"rows": 3}, [(0, 1), (0, 2), (1, 2)]),
        ("torus", 4, {}, [(0, 1), (0, 2), (1, 3), (2, 3)]),
        ("torus", 6, {}, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (3, 5), (4, 5)]),
        ("tree", 6, {}, [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]),
        ("tree", 6, {"branching": 3}, [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)]),
        ("tree", 3, {"branching": 1}, [(0, 1), (1, 2)]),
        ("k_regular", 4, {"k": 3}, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
        ("k_regular", 3, {"k": 2}, [(0, 1), (0, 2), (1, 2)]),
        ("erdos_renyi", 3, {"p": 1.0}, [(0, 1), (0, 2), (1, 2)]),
        ("erdos_renyi", 3, {"p": 0.0}, []),
        ("erdos_renyi", 3, {"p": 1e-300}, []),
        ("small_world", 5, {"k": 2, "p": 0.0}, [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]),
        ("scale_free", 4, {"m": 3}, [(0, 1), (0, 2), (0, 3)]),
        ("communities", 5, {"p_in": 1.0, "p_out": 0.0}, [(0, 1), (0, 2), (1, 2), (3, 4)]),
        ("communities", 4, {"sizes": [1, 3], "p_in": 1.0, "p_out": 0.0}, [(1, 2), (1, 3), (2, 3)]),
        ("communities", 4, {"sizes": [1, 3], "p_in": 0.0, "p_out": 1.0}, [(0, 1), (0, 2), (0, 3)]),
    ],
)
def test_small_graphs_have_the_edges_drawn_by_hand(name, num_clients, options, expected):
    graph = build(name, num_clients, **options)
    assert_simple(graph, num_clients)
    assert edges(graph) == expected


@pytest.mark.parametrize("name", ["complete", "ring", "line", "star", "grid", "torus", "tree"])
def test_one_client_is_alone_and_two_are_linked(name):
    assert edges(build(name, 1)) == []
    assert edges(build(name, 2)) == [(0, 1)]


def test_random_topologies_of_two_clients_are_one_link():
    for name, options in [("k_regular", {"k": 1}), ("scale_free", {"m": 1}), ("erdos_renyi", {"p": 1.0})]:
        assert edges(build(name, 2, **options)) == [(0, 1)]


@pytest.mark.parametrize("k", [1, 2, 3, 10, 50, 90, 97, 98])
def test_k_regular_gives_every_client_k_neighbours_however_dense(k):
    assert {degree for _, degree in build("k_regular", 100, k=k).degree} == {k}


def test_a_large_torus_gives_every_client_four_neighbours():
    assert {degree for _, degree in build("torus", 20).degree} == {4}


def test_every_graph_on_three_clients_has_the_probability_of_erdos_renyi():
    # Eight graphs of probability 1/8 each: 4000 draws give 500 +- 21 (one standard deviation).
    rng = np.random.default_rng(0)
    seen = [tuple(edges(topology.erdos_renyi(3, rng, p=0.5))) for _ in range(4000)]
    counts = [seen.count(graph) for graph in set(seen)]
    assert len(counts) == 8
    assert all(abs(count - 500) < 100 for count in counts)


def test_communities_have_the_given_link_probabilities_inside_and_between():
    graph = build("communities", 200, sizes=[50, 150], p_in=0.4, p_out=0.1)
    inside = sum((a < 50) == (b < 50) for a, b in graph.edges)
    between = graph.number_of_edges() - inside
    assert inside == pytest.approx(0.4 * (50 * 49 + 150 * 149) / 2, rel=0.05)
    assert between == pytest.approx(0.1 * 50 * 150, rel=0.15)


def test_small_world_keeps_the_number_of_links_and_moves_some():
    graph = build("small_world", 100, k=4, p=0.2)
    assert graph.number_of_edges() == 200
    # Of 200 links about 40 move; a moved link spans more than two steps of the ring nearly always.
    long = sum(min(b - a, 100 - (b - a)) > 2 for a, b in edges(graph))
    assert 20 <= long <= 60


def test_scale_free_is_connected_with_m_links_per_added_client():
    graph = build("scale_free", 100, m=2)
    assert nx.is_connected(graph)
    assert graph.number_of_edges() == 2 + 2 * 97


@pytest.mark.parametrize("name", RANDOM)
def test_random_graph_depends_only_on_the_generator(name):
    np.random.seed(1)  # noqa: NPY002 -- the global state must not matter
    first = list(build(name, 30, seed=5).edges)
    np.random.seed(2)  # noqa: NPY002
    assert list(build(name, 30, seed=5).edges) == first
    assert list(build(name, 30, seed=6).edges) != first


@pytest.mark.slow
def test_the_order_of_links_does_not_depend_on_string_hashing(tmp_path):
    path = tmp_path / "graph.graphml"
    nx.write_graphml(nx.relabel_nodes(nx.petersen_graph(), "client {}".format), path)
    script = (
        "import numpy as np; from rdpfl_sim.world.network.topology import TOPOLOGIES as T;"
        f"print([list(T[n](10, np.random.default_rng(0)).edges) for n in {RANDOM!r}]);"
        f"print(list(T['file'](10, None, path={str(path)!r}).edges))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_neighbours_are_sorted_whatever_the_order_of_the_links():
    graph = nx.empty_graph(4)
    graph.add_edges_from([(3, 1), (1, 2), (0, 1)])
    assert neighbours(graph) == [(1,), (0, 2, 3), (1,), (1,)]


@pytest.mark.parametrize(
    ("name", "num_clients", "options", "option", "text"),
    [
        ("grid", 12, {"rows": 5}, "rows", "must divide the number of clients, 12: 1, 2, 3, 4, 6, 12"),
        ("torus", 7, {"rows": 14}, "rows", "must divide the number of clients, 7: 1, 7"),
        ("k_regular", 7, {"k": 3}, "k", "must be even and between 2 and 6 when the number of clients is 7"),
        ("k_regular", 6, {"k": 6}, "k", "must be between 1 and 5 when the number of clients is 6"),
        ("k_regular", 1, {"k": 1}, "k", "has no valid value: there must be more than 1 clients"),
        ("small_world", 6, {"k": 3}, "k", "must be even and between 2 and 4 when the number of clients is 6"),
        ("small_world", 2, {"k": 2}, "k", "has no valid value: there must be more than 2 clients"),
        ("scale_free", 5, {"m": 5}, "m", "must be between 1 and 4 when the number of clients is 5"),
        ("communities", 3, {"num": 4}, "num", "must be between 1 and 3 when the number of clients is 3"),
        ("communities", 3, {"sizes": [1, 1]}, "sizes", "must add up to the number of clients: 3, not 2"),
        ("communities", 3, {"sizes": [1, 2], "num": 2}, "num", "must be left out when sizes are given"),
    ],
)
def test_an_impossible_graph_is_rejected_with_the_allowed_values(name, num_clients, options, option, text):
    assert message(option, lambda: build(name, num_clients, **options)) == text


def test_the_registry_reads_the_options_of_every_topology(tmp_path):
    choice = OneOf(TOPOLOGIES)
    assert {choice.table(name).target for name in choice.names()} == set(TOPOLOGIES.values())
    path = tmp_path / "links"
    path.write_text("0,1\n")
    read = choice.validate({"name": "file", "path": str(path), "format": "csv"}).bind()
    assert edges(read(2, np.random.default_rng(0))) == [(0, 1)]
    sized = choice.validate({"name": "communities", "sizes": [1, 2], "p_in": 1.0, "p_out": 0.0}).bind()
    assert edges(sized(3, np.random.default_rng(0))) == [(1, 2)]


def written(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_every_format_has_a_reader():
    assert set(get_args(topology.Format)) == {"auto", *topology._READERS}


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.edgelist", nx.write_edgelist),
        ("a.adjlist", nx.write_adjlist),
        ("a.multiline_adjlist", nx.write_multiline_adjlist),
        ("a.graphml", nx.write_graphml),
        ("a.graphml.gz", nx.write_graphml),
        ("a.gml", nx.write_gml),
        ("a.GML", nx.write_gml),
        ("a.gexf", nx.write_gexf),
        ("a.net", nx.write_pajek),
        ("a.g6", nx.write_graph6),
        ("a.s6", nx.write_sparse6),
    ],
)
def test_a_file_that_networkx_wrote_is_read_back(tmp_path, name, write):
    graph = nx.petersen_graph()
    if "g6" not in name and "s6" not in name:  # these number the nodes themselves
        graph = nx.Graph(sorted(graph.edges, reverse=True))
    write(graph, tmp_path / name)
    again = build("file", 10, path=str(tmp_path / name))
    assert_simple(again, 10)
    assert edges(again) == edges(graph)


def test_a_leda_file_is_read(tmp_path):
    text = "LEDA.GRAPH\nstring\nint\n-2\n3\n|{a}|\n|{b}|\n|{c}|\n2\n1 2 0 |{1}|\n2 3 0 |{1}|\n"
    assert edges(build("file", 3, path=written(tmp_path, "a.lgr", text))) == [(0, 1), (1, 2)]


def test_gml_without_labels_uses_node_numbers(tmp_path):
    text = "graph [ node [ id 7 ] node [ id 3 ] node [ id 10 ] edge [ source 3 target 10 ] ]"
    assert edges(build("file", 3, path=written(tmp_path, "a.gml", text))) == [(0, 2)]


@pytest.mark.parametrize("label", ["1_0", "+3", "\u0663", "3a"])
def test_label_that_is_not_written_with_digits_alone_is_a_name(tmp_path, label):
    path = written(tmp_path, "a.txt", f"0 1\n1 2\n2 {label}\n")
    assert len(edges(build("file", 4, path=path))) == 3
    assert "has 4 nodes" in message("path", lambda: build("file", 11, path=path))


def test_two_labels_of_the_same_number_are_rejected(tmp_path):
    path = written(tmp_path, "a.txt", "0 1\n1 2\n2 01\n")
    assert message("path", lambda: build("file", 3, path=path)) == "has the labels 1 and 01 for one client"


def test_labels_are_sorted_naturally(tmp_path):
    path = written(tmp_path, "a.txt", "n10 n9\nn9 n1\n")
    assert edges(build("file", 3, path=path)) == [(0, 1), (1, 2)]  # n1, n9, n10


def test_integer_labels_are_sorted_as_numbers(tmp_path):
    path = written(tmp_path, "a.txt", "100 -5\n-5 20\n-7 20\n")
    assert edges(build("file", 4, path=path)) == [(0, 2), (1, 2), (1, 3)]  # -7, -5, 20, 100


def test_an_edge_list_of_client_numbers_may_omit_clients(tmp_path):
    graph = build("file", 5, path=written(tmp_path, "a.csv", "\ufeff1, 3\n# a comment\n3,4\n"))
    assert_simple(graph, 5)
    assert edges(graph) == [(1, 3), (3, 4)]


def test_an_edge_list_that_counts_from_one_is_shifted(tmp_path):
    assert edges(build("file", 3, path=written(tmp_path, "a.txt", "1 2\n2 3\n"))) == [(0, 1), (1, 2)]


def test_an_edge_list_with_a_negative_label_is_shifted(tmp_path):
    assert edges(build("file", 3, path=written(tmp_path, "a.txt", "-1 0\n0 1\n"))) == [(0, 1), (1, 2)]


def test_weights_in_an_edge_list_are_ignored(tmp_path):
    assert edges(build("file", 3, path=written(tmp_path, "a.txt", "0 1 2.5\n1 2 0.5\n"))) == [(0, 1), (1, 2)]


def test_directions_self_loops_and_parallel_links_are_dropped(tmp_path):
    graph = nx.MultiDiGraph([(0, 1), (1, 0), (0, 1), (1, 1), (2, 1)])
    nx.write_graphml(graph, tmp_path / "a.graphml")
    read = build("file", 3, path=str(tmp_path / "a.graphml"))
    assert_simple(read, 3)
    assert edges(read) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "a b\nb c10\n", "has 3 nodes (a to c10) but the number of clients is 5"),
        ("a.txt", "0 5\n", "has 2 nodes (0 to 5) but the number of clients is 5"),
        ("a.txt", "", "has 0 nodes but the number of clients is 5"),
        ("a.adjlist", "0 1\n", "has 2 nodes (0 to 1) but the number of clients is 5"),
        ("a.g6", "A_\nA_\n", "must contain one graph, not 2"),
    ],
)
def test_a_file_with_another_number_of_clients_is_rejected_with_both_numbers(tmp_path, name, text, expected):
    path = written(tmp_path, name, text)
    assert message("path", lambda: build("file", 5, path=path)) == expected


def test_a_missing_file_is_rejected(tmp_path):
    missing = str(tmp_path / "missing.gml")
    assert (
        message("path", lambda: build("file", 3, path=missing)) == "cannot be read: No such file or directory"
    )


# Any text is an edge list or an adjacency list; the Pajek reader skips what it does not know.
@pytest.mark.parametrize("kind", sorted({*topology._READERS} - {"edgelist", "csv", "adjlist", "pajek"}))
def test_a_file_of_another_format_is_rejected(tmp_path, kind):
    path = written(tmp_path, "a", "once upon a time\n")
    text = message("path", lambda: build("file", 3, path=path, format_=kind))
    assert text.startswith(f"is not a readable {kind} file: ")


def test_bytes_that_are_not_text_are_rejected(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\xfa 1\n")
    text = message("path", lambda: build("file", 3, path=str(tmp_path / "a.txt")))
    assert text.startswith("is not a readable edgelist file: ")


def test_an_unknown_extension_needs_a_format(tmp_path):
    path = written(tmp_path, "a.dat", "0 1\n")
    assert "allowed: edgelist, csv" in message("format", lambda: build("file", 2, path=path))
    assert edges(build("file", 2, path=path, format_="edgelist")) == [(0, 1)]
