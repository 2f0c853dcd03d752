import networkx as nx
import numpy as np

from rdpfl_sim.reports.accuracy_curves import Curve
from rdpfl_sim.reports.topology_figure import topology_figure


def test_legend_counts_honest_byzantine_and_outnumbered_clients() -> None:
    topology = {"num_clients": 5, "edges": list(nx.cycle_graph(5).edges), "byzantine": [2]}
    evaluated = {client: Curve(np.zeros(1), np.zeros(1), np.array([0.5 + client / 10])) for client in (0, 1)}
    figure = topology_figure(topology, evaluated, "name", "description")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "honest (2)",
        "honest, never evaluated (2)",
        "Byzantine (1)",
        "honest, at least half of its neighbours Byzantine (2)",
    ]
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["0", "1", "2", "3", "4"]
