"""Positions of clients in drawings of a topology."""

from __future__ import annotations

import math
from typing import TypeAlias

import networkx as nx
import numpy as np
from numpy.typing import NDArray

MAX_KAMADA_KAWAI = 150  # takes about a second; the time grows with the square of this number

Coordinates: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = dict[int, Coordinates]


def graph_layout(graph: nx.Graph) -> Coordinates:
    """Return deterministic positions (clients, 2).

    Connected components are placed in rows, largest first; the area of each is proportional to its size.
    """
    components = sorted(nx.connected_components(graph), key=lambda members: (-len(members), min(members)))
    positions = np.zeros((len(graph), 2))
    # The square root of twice the total area, margins included: two equal components fit in a row.
    row_width = math.sqrt(2.1 * sum((2 * math.sqrt(len(members) - 1) + 1) ** 2 for members in components))
    left = top = row_height = 0.0
    for members in components:
        # Copy the subgraph, because views are slow to traverse. A single component needs no copy.
        part = graph if len(components) == 1 else nx.Graph(graph.subgraph(members))
        component = _component_layout(part)
        xy = np.array(list(component.values()), dtype=np.float64)
        xy -= xy.min(axis=0)
        xy *= 2 * math.sqrt(len(xy) - 1) / max(xy.max(), 1e-9)
        width, height = xy.max(axis=0) + 1
        if left > 0 and left + width > row_width:
            left, top, row_height = 0.0, top - row_height, 0.0
        positions[list(component)] = xy + np.array([left, top - height])
        left, row_height = left + width, max(row_height, height)
    return positions


def _component_layout(graph: nx.Graph) -> Positions:
    num_clients, degrees = len(graph), {degree for _, degree in graph.degree}
    hub = max(graph, key=graph.degree)
    if degrees == {2}:
        return _circle(list(nx.dfs_preorder_nodes(graph, min(graph))))
    if degrees == {num_clients - 1}:
        return _circle(sorted(graph))
    if graph.number_of_edges() == graph.degree(hub):
        return {hub: np.zeros(2)} | _circle([client for client in sorted(graph) if client != hub])
    if columns := _grid_columns(graph):
        return {
            client: np.array([i % columns, -(i // columns)], float) for i, client in enumerate(sorted(graph))
        }
    if num_clients <= MAX_KAMADA_KAWAI:
        positions: Positions = nx.kamada_kawai_layout(graph)
        return positions
    return _pivot_scaling(graph)


def _circle(order: list[int]) -> Positions:
    """Place clients clockwise in this order, with the first at the top."""
    angles = 2 * np.pi * np.arange(len(order)) / len(order)
    return dict(zip(order, np.stack([np.sin(angles), np.cos(angles)], axis=1), strict=True))


def _grid_columns(graph: nx.Graph) -> int | None:
    """Return the number of columns if the clients, ordered by id, fill a grid (or a line) row by row."""
    order, links = sorted(graph), {tuple(sorted(edge)) for edge in graph.edges}
    for columns in (c for c in range(2, len(order) + 1) if len(order) % c == 0):
        beside = {(order[i], order[i + 1]) for i in range(len(order) - 1) if (i + 1) % columns}
        if links == beside | set(zip(order, order[columns:], strict=False)):
            return columns
    return None


def _pivot_scaling(graph: nx.Graph, num_pivots: int = 50) -> Positions:
    """Return positions whose distances resemble hop counts, in time linear in the number of links.

    Pivot multidimensional scaling (Brandes and Pich, Graph Drawing 2006): the two leading directions of
    the doubly centred squared distances to a few pivots. A force layout of 5,000 clients takes minutes.
    """
    clients = list(graph)
    hops = np.zeros((len(clients), num_pivots))
    for pivot in range(num_pivots):
        distance = nx.single_source_shortest_path_length(graph, clients[pivot * len(clients) // num_pivots])
        hops[:, pivot] = [distance[client] for client in clients]
    squares = hops**2
    centred = squares.mean(axis=0) + squares.mean(axis=1, keepdims=True) - squares - squares.mean()
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    positions = u[:, :2] * s[:2]
    # Without noise, leaves of one hub would overlap, because their distances are equal.
    positions += np.random.default_rng(0).normal(scale=0.02 * np.ptp(positions), size=positions.shape)
    return dict(zip(clients, positions, strict=True))
