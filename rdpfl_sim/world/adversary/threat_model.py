"""Who is next to whom: how many of an honest client's neighbours lie, and who has none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import networkx as nx


@dataclass(frozen=True)
class Neighbourhoods:
    """What a graph and its Byzantine clients mean for the honest ones.

    `byzantine_fraction` is |B_i| / |N_i| of every honest client, 0 if it has no neighbours;
    `outside_threat_model` are those for whom it is not below 1/2, as the paper assumes.
    """

    byzantine_fraction: dict[int, float]
    outside_threat_model: list[int]
    isolated: list[int]
    num_components: int

    @classmethod
    def of(cls, graph: nx.Graph, byzantine: Collection[int]) -> Neighbourhoods:
        """Look at every honest client's neighbours."""
        byzantine = set(byzantine)
        fractions = {
            client: len(byzantine.intersection(graph[client])) / max(len(graph[client]), 1)
            for client in range(len(graph))
            if client not in byzantine
        }
        return cls(
            byzantine_fraction=fractions,
            outside_threat_model=[client for client, fraction in fractions.items() if fraction >= 0.5],
            isolated=sorted(nx.isolates(graph)),
            num_components=nx.number_connected_components(graph),
        )

    @property
    def warnings(self) -> list[str]:
        """What a user should know before believing a result."""
        found = []
        outside = self.outside_threat_model
        if outside:
            found.append(
                f"{len(outside)} of {len(self.byzantine_fraction)} honest clients have at least half "
                f"Byzantine neighbours ({_listed(outside)}): outside the paper's threat model"
            )
        if self.isolated:
            found.append(f"clients without neighbours learn alone: {_listed(self.isolated)}")
        if self.num_components > 1:
            found.append(f"the graph is disconnected: {self.num_components} components")
        return found


def hops_to(graph: nx.Graph, byzantine: Collection[int]) -> list[int | None]:
    """Every client's distance to the nearest Byzantine one; None where no path leads to one."""
    distances = (
        nx.multi_source_dijkstra_path_length(graph, set(byzantine), weight=lambda i, j, data: 1)
        if byzantine
        else {}
    )
    return [distances.get(client) for client in range(len(graph))]


def _listed(clients: Sequence[int]) -> str:
    shown = ", ".join(map(str, clients[:10]))
    return shown if len(clients) <= 10 else f"{shown} and {len(clients) - 10} more"
