"""Topologies: undirected simple graphs over the clients 0..n-1.

A topology draws only from the given generator, and adds clients and links in sorted order. The
same generator therefore gives the same graph in every process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from math import isqrt
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import networkx as nx
import numpy as np
from networkx.readwrite.graph6 import data_to_n
from numpy.typing import ArrayLike, NDArray

from rdpfl_sim.components.options import MAX_INPUT_BYTES, Count, Doc, Fraction
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError
from rdpfl_sim.files import read_input


@dataclass(frozen=True, kw_only=True)
class TopologyFacts(Facts):
    """Metadata of a topology, set by its decorator."""

    num_links: Callable[..., float] = lambda num_clients, **options: 0.0
    """The approximate number of links, from the number of clients and all options, if there can be many."""


TOPOLOGIES = Registry("topology", TopologyFacts)
topology = TOPOLOGIES.register

MAX_NODES = 1_000_000
_NUMBER = re.compile(r"\s*-?[0-9]{1,18}\s*")  # in CSV, a space may follow the comma

ClientArray: TypeAlias = NDArray[np.int64]
NumRows: TypeAlias = Annotated[
    Count | None, Doc("a divisor of the number of clients; by default, the grid is as square as possible")
]
Format: TypeAlias = Literal[
    "auto",
    "edgelist",
    "csv",
    "adjlist",
    "multiline_adjlist",
    "graphml",
    "gml",
    "gexf",
    "pajek",
    "leda",
    "graph6",
    "sparse6",
]


def neighbours(graph: nx.Graph) -> list[tuple[int, ...]]:
    """Return the sorted neighbours of every client."""
    return [tuple(sorted(graph[client])) for client in range(len(graph))]


def num_pairs(num_clients: int) -> int:
    """Return the number of pairs of clients."""
    return num_clients * (num_clients - 1) // 2


@topology(num_links=num_pairs)
def complete(num_clients: int, rng: np.random.Generator) -> nx.Graph:
    """Every client is linked to every other client."""
    return nx.complete_graph(num_clients)


@topology
def ring(num_clients: int, rng: np.random.Generator) -> nx.Graph:
    """Each client is linked to the previous and the next one."""
    return torus(num_clients, rng, rows=1)


@topology
def line(num_clients: int, rng: np.random.Generator) -> nx.Graph:
    """A ring without the link between the last client and the first."""
    return nx.path_graph(num_clients)


@topology
def star(num_clients: int, rng: np.random.Generator) -> nx.Graph:
    """Every client is linked to client 0 only."""
    return nx.star_graph(num_clients - 1)


@topology
def grid(num_clients: int, rng: np.random.Generator, *, rows: NumRows = None) -> nx.Graph:
    """Clients in a rectangle, row by row, each linked to those on the left and right, above and below."""
    clients = _rectangle(num_clients, rows)
    return _graph(
        num_clients,
        np.concatenate([_pairs(clients[:, :-1], clients[:, 1:]), _pairs(clients[:-1], clients[1:])]),
    )


@topology
def torus(num_clients: int, rng: np.random.Generator, *, rows: NumRows = None) -> nx.Graph:
    """A grid whose opposite sides are joined: four neighbours per client if both sides exceed 2."""
    clients = _rectangle(num_clients, rows)
    return _graph(
        num_clients, np.concatenate([_pairs(clients, np.roll(clients, -1, axis)) for axis in (0, 1)])
    )


@topology
def tree(
    num_clients: int,
    rng: np.random.Generator,
    *,
    branching: Annotated[Count, Doc("children per client")] = 2,
) -> nx.Graph:
    """A tree filled level by level from client 0: the parent of client i is (i - 1) // branching."""
    children = np.arange(1, num_clients)
    return _graph(num_clients, _pairs((children - 1) // branching, children))


@topology(num_links=lambda num_clients, k: num_clients * k / 2)
def k_regular(
    num_clients: int, rng: np.random.Generator, *, k: Annotated[Count, Doc("neighbours of every client")] = 4
) -> nx.Graph:
    """A random graph in which every client has exactly k neighbours (Steger and Wormald, 1999)."""
    _require("k", k, range(1, num_clients) if num_clients % 2 == 0 else range(2, num_clients, 2), num_clients)
    # Random pairing rarely succeeds for a dense graph; its complement is sparse and equally random.
    missing = num_clients - 1 - k
    graph = nx.random_regular_graph(min(k, missing), num_clients, seed=_seed(rng))
    return _graph(num_clients, list((nx.complement(graph) if missing < k else graph).edges))


@topology(num_links=lambda num_clients, p: num_pairs(num_clients) * p)
def erdos_renyi(
    num_clients: int, rng: np.random.Generator, *, p: Annotated[Fraction, Doc("probability of a link")] = 0.3
) -> nx.Graph:
    """Each pair of clients is linked with probability p, independently; may be disconnected."""
    return _graph(num_clients, _random_pairs(num_clients, p, rng))


@topology(num_links=lambda num_clients, k, p: num_clients * k / 2)
def small_world(
    num_clients: int,
    rng: np.random.Generator,
    *,
    k: Annotated[Count, Doc("neighbours on the ring, half on each side; even")] = 4,
    p: Annotated[Fraction, Doc("probability that a link is rewired")] = 0.2,
) -> nx.Graph:
    """A ring with k neighbours per client, partly rewired (Watts and Strogatz, 1998); may be disconnected."""
    _require("k", k, range(2, num_clients, 2), num_clients)
    return _graph(num_clients, list(nx.watts_strogatz_graph(num_clients, k, p, seed=_seed(rng)).edges))


@topology(num_links=lambda num_clients, m: num_clients * m)
def scale_free(
    num_clients: int,
    rng: np.random.Generator,
    *,
    m: Annotated[Count, Doc("links that each new client adds")] = 2,
) -> nx.Graph:
    """Preferential attachment (Barabási and Albert, 1999); connected."""
    _require("m", m, range(1, num_clients), num_clients)
    return _graph(num_clients, list(nx.barabasi_albert_graph(num_clients, m, seed=_seed(rng)).edges))


def _num_links_of_communities(
    num_clients: int, num: int | None, sizes: list[int] | None, p_in: float, p_out: float
) -> float:
    return num_pairs(num_clients) * (p_out + p_in / (num or len(sizes or (1, 1))))


@topology(num_links=_num_links_of_communities)
def communities(
    num_clients: int,
    rng: np.random.Generator,
    *,
    num: Annotated[
        Count | None,
        Doc("number of communities, whose sizes differ by at most one; by default 2, unless sizes are given"),
    ] = None,
    sizes: Annotated[list[Count] | None, Doc("clients in each community, instead of num")] = None,
    p_in: Annotated[Fraction, Doc("probability of a link inside a community")] = 0.8,
    p_out: Annotated[Fraction, Doc("probability of a link between communities")] = 0.05,
) -> nx.Graph:
    """Groups of consecutive clients with many links inside and few links between them (block model)."""
    if sizes is None:
        num = num or min(2, num_clients)
        _require("num", num, range(1, num_clients + 1), num_clients)
        sizes = [num_clients // num + (i < num_clients % num) for i in range(num)]
    elif num is not None:
        raise OptionError("num", "must be left out when sizes are given")
    elif sum(sizes) != num_clients:
        raise OptionError("sizes", f"must add up to the number of clients: {num_clients}, not {sum(sizes)}")
    community = np.repeat(np.arange(len(sizes)), sizes)
    anywhere = _random_pairs(num_clients, p_out, rng)
    between = anywhere[community[anywhere[:, 0]] != community[anywhere[:, 1]]]
    firsts = np.cumsum([0, *sizes[:-1]])
    inside = [first + _random_pairs(size, p_in, rng) for first, size in zip(firsts, sizes, strict=True)]
    return _graph(num_clients, np.concatenate([between, *inside]))


@topology
def file(
    num_clients: int,
    rng: np.random.Generator,
    *,
    path: Annotated[str, Doc("a graph file, possibly compressed (.gz, .bz2)")],
    format_: Annotated[Format, Doc("auto: from the extension; csv: an edge list with commas")] = "auto",
) -> nx.Graph:
    """The graph from a file. Directions, weights, self-loops and parallel links are ignored.

    Its nodes, sorted by label (n2 before n10), become the clients 0, 1, ... If all labels of an edge list are
    valid client ids, they are kept; a client that the file does not contain has no neighbours.
    """
    kind = _kind(path) if format_ == "auto" else format_
    graph = _read(path, kind, num_clients)
    client = _clients_by_node(graph, num_clients, edges_only=kind in ("edgelist", "csv"))
    return _graph(num_clients, [(client[a], client[b]) for a, b in graph.edges()])


def _graph(num_clients: int, edges: ArrayLike) -> nx.Graph:
    """Return the simple graph with these edges, added in sorted order."""
    ends = np.sort(np.asarray(edges, dtype=np.int64).reshape(-1, 2), axis=1)
    low, high = ends[ends[:, 0] != ends[:, 1]].T
    low, high = np.divmod(np.unique(low * num_clients + high), num_clients)
    graph = nx.empty_graph(num_clients)
    graph.add_edges_from(zip(low.tolist(), high.tolist(), strict=True))
    return graph


def _pairs(a: ClientArray, b: ClientArray) -> ClientArray:
    return np.stack([a.ravel(), b.ravel()], axis=1)


def _random_pairs(num_clients: int, p: float, rng: np.random.Generator) -> ClientArray:
    """Draw each pair of distinct clients with probability p, in time proportional to the pairs drawn.

    The pair (low, high) has the index high (high - 1) / 2 + low. The block model of networkx tests every pair
    instead.
    """
    num_all = num_pairs(num_clients)
    kept = rng.choice(num_all, rng.binomial(num_all, p), replace=False, shuffle=False)
    clients = np.arange(num_clients, dtype=np.int64)
    first = clients * (clients - 1) // 2
    high = np.searchsorted(first, kept, side="right") - 1
    return _pairs(kept - first[high], high)


def _rectangle(num_clients: int, rows: int | None) -> ClientArray:
    if rows is None:
        rows = next(r for r in range(isqrt(num_clients), 0, -1) if num_clients % r == 0)
    if num_clients % rows:
        divisors = ", ".join(str(r) for r in range(1, num_clients + 1) if num_clients % r == 0)
        raise OptionError("rows", f"must divide the number of clients, {num_clients}: {divisors}")
    return np.arange(num_clients).reshape(rows, -1)


def _require(option: str, value: int, allowed: range, num_clients: int) -> None:
    if value not in allowed:
        if not allowed:
            raise OptionError(option, f"has no valid value: there must be more than {num_clients} clients")
        even = "even and " if allowed.step == 2 else ""
        bounds = f"between {allowed[0]} and {allowed[-1]}"
        raise OptionError(option, f"must be {even}{bounds} when the number of clients is {num_clients}")


def _seed(rng: np.random.Generator) -> int:
    """Draw a seed for networkx, whose handling of numpy generators differs between releases."""
    return int(rng.integers(2**31))


def _clients_by_node(graph: nx.Graph, num_clients: int, *, edges_only: bool) -> dict[object, int]:
    if all(_NUMBER.fullmatch(str(node)) for node in graph):  # int() also reads 1_0
        number = {node: int(str(node)) for node in graph}
        if number and edges_only and all(0 <= n < num_clients for n in number.values()):
            _reject_equal_numbers(number)
            return number
        nodes = sorted(graph, key=number.__getitem__)
    else:
        nodes = sorted(graph, key=_natural)
    if len(nodes) != num_clients:
        labels = f" ({nodes[0]} to {nodes[-1]})" if nodes else ""
        raise OptionError(
            "path", f"has {len(nodes)} nodes{labels} but the number of clients is {num_clients}"
        )
    return {node: client for client, node in enumerate(nodes)}


def _reject_equal_numbers(number: dict[object, int]) -> None:
    labels: dict[int, str] = {}
    for node, client in number.items():
        label = str(node).strip()
        if labels.setdefault(client, label) != label:
            raise OptionError("path", f"has the labels {labels[client]} and {label} for one client")


def _natural(node: object) -> list[str | tuple[int, str]]:
    """Return a sort key by which n2 comes before n10, for any number of digits."""
    parts = re.split(r"([0-9]+)", str(node))
    return [(len(part.lstrip("0")), part.lstrip("0")) if i % 2 else part for i, part in enumerate(parts)]


def _read(path: str, kind: str, num_clients: int) -> nx.Graph:
    try:
        content = read_input(path, MAX_INPUT_BYTES)
        if kind == "sparse6":
            _check_header(content, num_clients)
        graph = _READERS[kind](BytesIO(content))
    except OptionError:
        raise
    except OSError as error:
        raise OptionError("path", f"cannot be read: {error.strerror or error}") from error
    except Exception as error:  # readers raise different errors for a file in the wrong format
        raise OptionError(
            "path", f"is not a readable {kind} file: {type(error).__name__}: {error}"
        ) from error
    if isinstance(graph, list):  # graph6 and sparse6 files may contain one graph per line
        raise OptionError("path", f"must contain one graph, not {len(graph)}")
    return graph


def _check_header(content: bytes, num_clients: int) -> None:
    """Raise an error if a sparse6 header declares too many nodes, before the reader creates them."""
    text = content.strip().removeprefix(b">>sparse6<<").removeprefix(b":")
    num_nodes, _ = data_to_n([character - 63 for character in text[:8]])
    if num_nodes > max(num_clients, MAX_NODES):
        raise OptionError("path", f"has {num_nodes} nodes but the number of clients is {num_clients}")


def _read_gml(file: BytesIO) -> nx.Graph:
    try:
        return nx.read_gml(file)
    except nx.NetworkXError:  # labels are optional in GML, ids are not
        file.seek(0)
        return nx.read_gml(file, label="id")


def _kind(path: str) -> str:
    """Return the format for the extension of `path`."""
    extension = Path(path.removesuffix(".gz").removesuffix(".bz2")).suffix.removeprefix(".").lower()
    kind = _EXTENSIONS.get(extension, extension)
    if kind not in _READERS:
        raise OptionError(
            "format", f"cannot be inferred from the path {path!r}; allowed: {', '.join(_READERS)}"
        )
    return kind


_READERS: dict[str, Callable[[BytesIO], Any]] = {
    "edgelist": partial(nx.read_edgelist, data=False),
    "csv": partial(nx.read_edgelist, data=False, delimiter=",", encoding="utf-8-sig"),
    "adjlist": nx.read_adjlist,
    "multiline_adjlist": nx.read_multiline_adjlist,
    "graphml": nx.read_graphml,
    "gml": _read_gml,
    "gexf": nx.read_gexf,
    "pajek": nx.read_pajek,
    "leda": nx.read_leda,
    "graph6": nx.read_graph6,
    "sparse6": nx.read_sparse6,
}

_EXTENSIONS = {
    "edges": "edgelist",
    "txt": "edgelist",
    "tsv": "edgelist",
    "net": "pajek",
    "lgr": "leda",
    "g6": "graph6",
    "s6": "sparse6",
}
