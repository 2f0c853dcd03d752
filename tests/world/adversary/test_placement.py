from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.world.adversary.placement import PLACEMENTS


def place(name: str, graph: nx.Graph, num_byzantine: int, seed: int = 0) -> list[int]:
    return PLACEMENTS[name](graph, num_byzantine, np.random.default_rng(seed), ())


@st.composite
def graphs(draw):
    num_clients = draw(st.integers(1, 16))
    clients = st.integers(0, num_clients - 1)
    graph = nx.empty_graph(num_clients)
    graph.add_edges_from((a, b) for a, b in draw(st.lists(st.tuples(clients, clients))) if a != b)
    return graph


@pytest.mark.parametrize("name", PLACEMENTS)
@given(graph=graphs(), seed=st.integers(0, 5))
def test_larger_fraction_adds_byzantine_clients_to_those_of_a_smaller_one(name, graph, seed):
    previous: list[int] = []
    for num_byzantine in range(len(graph) + 1):
        chosen = place(name, graph, num_byzantine, seed)
        assert chosen == sorted(set(chosen))
        assert len(chosen) == num_byzantine
        assert set(previous) <= set(chosen) <= set(graph)
        assert all(type(client) is int for client in chosen)
        previous = chosen


@pytest.mark.parametrize("name", PLACEMENTS)
def test_the_first_byzantine_client_of_a_symmetric_graph_is_uniform(name):
    # 1000 draws over 5 clients: 200 +- 13 each (one standard deviation).
    counts = Counter(place(name, nx.cycle_graph(5), 1, seed)[0] for seed in range(1000))
    assert sorted(counts) == [0, 1, 2, 3, 4]
    assert all(abs(count - 200) < 65 for count in counts.values())


@pytest.mark.parametrize("name", PLACEMENTS)
def test_more_byzantine_clients_than_clients_is_a_broken_invariant(name):
    with pytest.raises(AssertionError, match="4 Byzantine of 3 clients"):
        place(name, nx.path_graph(3), 4)


def test_random_ignores_the_links():
    assert place("random", nx.star_graph(9), 4) == place("random", nx.path_graph(10), 4)


def test_degree_selects_clients_with_most_links_first_and_breaks_ties_at_random():
    graph = nx.Graph(
        [(0, 1), (0, 2), (0, 3), (0, 4), (4, 5), (4, 6)]
    )  # degrees: 0 has 4, 4 has 3, the rest 1
    assert place("degree", graph, 1) == [0]
    assert place("degree", graph, 2) == [0, 4]
    thirds = {(set(place("degree", graph, 3, seed)) - {0, 4}).pop() for seed in range(60)}
    assert thirds == {1, 2, 3, 5, 6}


def test_spread_selects_opposite_ends_then_the_middle():
    # From any first client on a line of nine, the next is an end; then come the other end and the middle.
    for seed in range(20):
        first = place("spread", nx.path_graph(9), 1, seed)[0]
        second = (set(place("spread", nx.path_graph(9), 2, seed)) - {first}).pop()
        assert second in {4: (0, 8)}.get(first, (8,) if first < 4 else (0,))
        if first in (0, 8):
            assert place("spread", nx.path_graph(9), 3, seed) == [0, 4, 8]


@given(graph=graphs(), seed=st.integers(0, 5))
def test_each_spread_client_is_a_farthest_one_from_those_before(graph, seed):
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    before: set[int] = set()
    for num_byzantine in range(1, len(graph) + 1):
        (new,) = set(place("spread", graph, num_byzantine, seed)) - before
        distance = {v: min((hops[v].get(b, np.inf) for b in before), default=np.inf) for v in graph}
        assert distance[new] == max(distance.values())
        before.add(new)


def test_spread_selects_one_client_per_component_before_a_second_one():
    graph = nx.disjoint_union_all([nx.path_graph(20), nx.path_graph(3), nx.empty_graph(1)])
    for seed in range(20):
        chosen = place("spread", graph, 3, seed)
        assert chosen[0] < 20 <= chosen[1] < 23 <= chosen[2]


def test_clustered_clients_are_adjacent_on_a_ring():
    for seed in range(20):
        chosen = place("clustered", nx.cycle_graph(12), 5, seed)
        assert nx.is_connected(nx.cycle_graph(12).subgraph(chosen))


@given(graph=graphs(), seed=st.integers(0, 5))
def test_clustered_is_a_ball_in_its_component(graph, seed):
    (centre,) = place("clustered", graph, 1, seed)
    hops = nx.single_source_shortest_path_length(graph, centre)
    for num_byzantine in range(1, len(hops) + 1):
        chosen = place("clustered", graph, num_byzantine, seed)
        assert max(hops[v] for v in chosen) <= min((hops[v] for v in set(hops) - set(chosen)), default=np.inf)


def test_clustered_breaks_ties_at_random():
    star = nx.star_graph(4)
    around_the_centre = [seed for seed in range(200) if place("clustered", star, 1, seed) == [0]]
    assert {tuple(place("clustered", star, 2, seed)) for seed in around_the_centre} == {
        (0, 1),
        (0, 2),
        (0, 3),
        (0, 4),
    }


def test_clustered_continues_elsewhere_when_its_component_is_exhausted():
    graph = nx.disjoint_union(nx.path_graph(3), nx.path_graph(4))
    for seed in range(20):
        chosen = set(place("clustered", graph, 5, seed))
        assert chosen > {0, 1, 2} or chosen > {3, 4, 5, 6}
        assert all(nx.is_connected(graph.subgraph(chosen & part)) for part in ({0, 1, 2}, {3, 4, 5, 6}))
