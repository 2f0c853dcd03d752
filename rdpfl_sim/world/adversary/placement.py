"""Placements, which select the Byzantine clients.

Every placement ranks all clients and selects the first ones. With the same generator, a larger number of
Byzantine clients only adds clients, so a sweep over this number is a paired comparison.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias

import networkx as nx
import numpy as np

from rdpfl_sim.components.registry import Facts, Registry

PLACEMENTS = Registry("placement", Facts)
placement = PLACEMENTS.register

Taken: TypeAlias = Collection[int]
"""Clients that already belong to another group."""


@placement
def random(graph: nx.Graph, num_byzantine: int, rng: np.random.Generator, taken: Taken) -> list[int]:
    """Clients drawn uniformly."""
    return _first(num_byzantine, rng.permutation(len(graph)).tolist(), taken)


@placement
def degree(graph: nx.Graph, num_byzantine: int, rng: np.random.Generator, taken: Taken) -> list[int]:
    """The clients with the most neighbours, ties broken at random."""
    num_neighbours = np.array([graph.degree(client) for client in range(len(graph))])
    return _first(num_byzantine, np.lexsort((rng.random(len(graph)), -num_neighbours)).tolist(), taken)


@placement
def spread(graph: nx.Graph, num_byzantine: int, rng: np.random.Generator, taken: Taken) -> list[int]:
    """Clients far from each other: each is the farthest, in hops, from those chosen before it.

    This is the greedy rule of Gonzalez (1985). The first client is random, and ties are broken at random. A
    client without a path to any chosen one counts as the farthest, so every connected component gets one
    Byzantine client before any component gets two.
    """
    return _first(num_byzantine, _farthest_first(graph, rng), taken)


@placement
def clustered(graph: nx.Graph, num_byzantine: int, rng: np.random.Generator, taken: Taken) -> list[int]:
    """The clients nearest, in hops, to a random one; then those of other components, if needed."""
    return _first(num_byzantine, _nearest_first(graph, rng), taken)


def _first(num_byzantine: int, ranked: Iterable[int], taken: Taken) -> list[int]:
    byzantine = sorted(islice((client for client in ranked if client not in taken), num_byzantine))
    assert len(byzantine) == num_byzantine, f"{num_byzantine} Byzantine of {len(byzantine)} clients"
    return byzantine


def _farthest_first(graph: nx.Graph, rng: np.random.Generator) -> Iterator[int]:
    num_clients = len(graph)
    tie_break = rng.random(num_clients)  # smaller than one hop
    distance = num_clients + tie_break  # to the nearest chosen client; no path is this long
    for _ in range(num_clients):
        chosen = int(distance.argmax())
        yield chosen
        reached, hops = {chosen}, 0
        while reached:
            # Do not search beyond a client that is at least as near to an earlier choice.
            closer = [client for client in reached if hops + tie_break[client] < distance[client]]
            distance[closer] = hops + tie_break[closer]
            reached, hops = {neighbour for client in closer for neighbour in graph[client]}, hops + 1


def _nearest_first(graph: nx.Graph, rng: np.random.Generator) -> Iterator[int]:
    shuffled = rng.permutation(len(graph)).tolist()
    rank = {client: position for position, client in enumerate(shuffled)}
    by_rank = partial(sorted, key=rank.__getitem__)
    seen = set()
    for start in shuffled:
        if start in seen:
            continue
        seen.add(start)
        yield start
        for _, client in nx.bfs_edges(graph, start, sort_neighbors=by_rank):
            seen.add(client)
            yield client
