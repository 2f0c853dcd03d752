import networkx as nx

from rdpfl_sim.world.adversary.threat_model import Neighbourhoods


def outside(graph: nx.Graph, byzantine: list[int]) -> list[int]:
    return Neighbourhoods.of(graph, byzantine).outside_threat_model


def test_byzantine_fraction_counts_the_neighbours_of_honest_clients() -> None:
    graph = nx.Graph([(0, 1), (0, 2), (0, 3), (1, 2)])
    graph.add_node(4)
    around = Neighbourhoods.of(graph, [1, 3])
    assert around.byzantine_fraction == {0: 2 / 3, 2: 1 / 2, 4: 0.0}
    assert (around.isolated, around.num_components) == ([4], 2)


def test_half_of_the_neighbours_is_outside_the_threat_model() -> None:
    assert outside(nx.cycle_graph(10), [0, 3]) == [1, 2, 4, 9]
    assert outside(nx.complete_graph(5), [0, 1]) == [2, 3, 4]  # two of four
    assert outside(nx.complete_graph(6), [0, 1]) == []  # two of five
    assert outside(nx.empty_graph(3), [0]) == []


def test_connected_graph_with_few_attackers_gives_no_warning_and_another_three() -> None:
    assert Neighbourhoods.of(nx.complete_graph(6), [0]).warnings() == []
    sick = nx.empty_graph(30)
    sick.add_edge(0, 1)
    found = Neighbourhoods.of(sick, [0]).warnings()
    assert found == [
        "1 of 29 honest clients is outside the paper's threat model: "
        "at least half of its neighbours are Byzantine",
        "clients without neighbours train locally: 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 18 more",
        "the graph is disconnected: 29 components",
    ]


def test_warning_states_why_clients_are_outside_the_threat_model() -> None:
    [warning] = Neighbourhoods.of(nx.cycle_graph(4), [0]).warnings(["a ring", "a test"])
    assert (
        warning == "2 of 3 honest clients are outside the paper's threat model, as intended: a ring; a test"
    )
    assert Neighbourhoods.of(nx.complete_graph(6), [0]).warnings(["a ring"]) == []
