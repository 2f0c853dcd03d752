"""The threat model: what attackers observe, and how many neighbours of each honest client are Byzantine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import networkx as nx

ATTACKS_WITHOUT_EFFECT = "attacks have no effect: the method sends no messages"


Level = Literal["own", "neighbourhood", "omniscient"]
"""The updates that attackers observe: their own, also those they receive, or those of all honest clients."""


def observed_clients(
    knowledge: Level, members: frozenset[int], byzantine: frozenset[int], num_clients: int
) -> frozenset[int]:
    """Return the clients whose updates a group of attackers observes as soon as they are computed.

    With `neighbourhood`, attackers observe honest updates when a message reaches them.
    """
    if knowledge == "omniscient":
        return frozenset(range(num_clients)) - byzantine
    return members if knowledge == "own" else frozenset()


@dataclass(frozen=True)
class Neighbourhoods:
    """Neighbourhoods of the honest clients of a graph.

    `byzantine_fraction` is |B_i| / |N_i| of every honest client, 0 if it has no neighbours. The paper assumes
    a fraction below 1/2; `outside_threat_model` lists the clients with a fraction of at least 1/2.
    """

    byzantine_fraction: dict[int, float]
    outside_threat_model: list[int]
    isolated: list[int]
    num_components: int

    @classmethod
    def of(cls, graph: nx.Graph, byzantine: Collection[int]) -> Neighbourhoods:
        """Return the neighbourhoods of a graph's honest clients."""
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

    def warnings(self, intended: Sequence[str] = ()) -> list[str]:
        """Return warnings about the interpretation of results.

        `intended` are the reasons why clients are outside the threat model, as stated in the scenario.
        """
        found = []
        outside = self.outside_threat_model
        if outside:
            verb, whose = ("is", "its") if len(outside) == 1 else ("are", "their")
            found.append(
                f"{len(outside)} of {len(self.byzantine_fraction)} honest clients {verb} outside the paper's "
                "threat model"
                + (
                    f", as intended: {'; '.join(intended)}"
                    if intended
                    else f": at least half of {whose} neighbours are Byzantine"
                )
            )
        if self.isolated:
            found.append(f"clients without neighbours train locally: {_first_ids(self.isolated)}")
        if self.num_components > 1:
            found.append(f"the graph is disconnected: {self.num_components} components")
        return found


def hops_to(graph: nx.Graph, byzantine: Collection[int]) -> list[int | None]:
    """Return every client's distance to the nearest Byzantine client, or None if there is no path."""
    distances = (
        nx.multi_source_dijkstra_path_length(graph, set(byzantine), weight=lambda i, j, data: 1)
        if byzantine
        else {}
    )
    return [distances.get(client) for client in range(len(graph))]


def _first_ids(clients: Sequence[int]) -> str:
    shown = ", ".join(map(str, clients[:10]))
    return shown if len(clients) <= 10 else f"{shown} and {len(clients) - 10} more"
