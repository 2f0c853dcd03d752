"""The PNG figures of a run, drawn from the files in its folder: learning curves and topology."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import matplotlib as mpl
import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rdpfl_sim.files import remove_partial
from rdpfl_sim.records.files import SUMMARY
from rdpfl_sim.records.metrics import MOMENTS, headline_moment
from rdpfl_sim.records.reader import RunReader, Topology
from rdpfl_sim.reports.figure_style import (
    BYZANTINE,
    DASHES,
    FAINT,
    HONEST,
    INK,
    MUTED,
    add_legend,
    new_figure,
    save,
    style_axes,
    text_colour,
)
from rdpfl_sim.world.adversary.threat_model import Neighbourhoods

if TYPE_CHECKING:
    import polars as pl

CURVES_PNG, TOPOLOGY_PNG = "curves.png", "topology.png"
NBSP = "\N{NO-BREAK SPACE}"
MAX_LINES = 12
"""Maximum number of clients drawn as individual lines."""
MAX_LABELS = 50
MAX_LINKS = 20_000
"""Maximum number of links in a figure."""


def are_up_to_date(run_dir: Path) -> bool:
    """Return whether the figures were drawn after the run finished."""
    end_ns = (run_dir / SUMMARY).stat().st_mtime_ns
    paths = [run_dir / name for name in (CURVES_PNG, TOPOLOGY_PNG)]
    return all(path.exists() and path.stat().st_mtime_ns >= end_ns for path in paths)


def draw(run_dir: Path) -> list[Path]:
    """Write `curves.png` and `topology.png` into a run folder and return their paths."""
    for name in (CURVES_PNG, TOPOLOGY_PNG):
        remove_partial(run_dir / name)
    reader = RunReader(run_dir)
    rows: list[Mapping[str, Any]] = [*reader.read_metrics()]
    moment = headline_moment(reader.read_scenario())
    columns = ("client", f"{moment}_time_s", "round", f"{moment}_personal_accuracy")
    honest, byzantine = (
        client_curves(
            tuple(row[column] for column in columns) for row in rows if bool(row["byzantine"]) is is_byzantine
        )
        for is_byzantine in (False, True)
    )
    topology = reader.read_topology()
    summary = reader.read_summary() or {"name": run_dir.name}  # unfinished runs have no summary
    name, description = summary["name"], f"{_description(summary, topology)}, tested {MOMENTS[moment]}"
    return [
        save(curves_figure(honest, byzantine, name, description), run_dir / CURVES_PNG),
        save(topology_figure(topology, honest, name, description), run_dir / TOPOLOGY_PNG),
    ]


def _description(summary: Mapping[str, object], topology: Topology) -> str:
    facts = [f"{key} {summary[key]}" for key in ("method", "attack", "topology") if summary.get(key)]
    facts += [f"{topology['num_clients']:,}{NBSP}clients", f"{len(topology['byzantine']):,}{NBSP}Byzantine"]
    return ", ".join(facts)


def curves_figure(honest: Curves, byzantine: Curves, name: str, description: str) -> Figure:
    """Draw the mean and the range of honest clients, and Byzantine clients for comparison."""
    figure = new_figure(name, description, 12, 4.8)
    panels = figure.subplots(1, 2, sharey=True)
    per_client = len(honest) + len(byzantine) <= MAX_LINES
    for axes, by, label in zip(panels, ("round", "time_s"), ("round", "simulated time (s)"), strict=True):
        style_axes(axes)
        axes.set_xlabel(label, fontsize=12, color=INK)
        if by == "round":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if byzantine:
            _draw_byzantine(axes, byzantine, by, per_client)
        if honest:
            _draw_honest(axes, honest, by, per_client)
        if not honest and not byzantine:
            axes.set(xticks=[], yticks=[])
            axes.text(0.5, 0.5, "no evaluations", transform=axes.transAxes, ha="center", color=MUTED)
    panels[0].set_ylabel("personal accuracy", fontsize=12, color=INK)
    panels[0].set_ylim(top=min(panels[0].get_ylim()[1], 1.005))
    keys = _curve_keys(bool(honest), bool(byzantine), per_client)
    add_legend(figure, keys, ncols=4, fontsize=11)
    return figure


def _draw_honest(axes: Axes, curves: Curves, by: str, per_client: bool) -> None:
    x, values = latest_values(curves, by)
    low, high = np.nanpercentile(values, [0, 100] if per_client else [10, 90], axis=0)
    axes.fill_between(x, low, high, step="post" if by == "time_s" else None, color=HONEST, alpha=0.13, lw=0)
    for curve in curves.values() if per_client else ():
        axes.plot(getattr(curve, by), curve.accuracy, ds=_draw_style(by), color=HONEST, lw=0.8, alpha=0.45)
    mean = np.nanmean(values, axis=0)
    axes.plot(x, mean, ds=_draw_style(by), color=HONEST, lw=2.8)
    last = axes.annotate(f"{mean[-1]:.3f}", (x[-1], mean[-1]), (7, 0), textcoords="offset points")
    last.set(va="center", color=HONEST, fontsize=12, fontweight="bold")


def _draw_byzantine(axes: Axes, curves: Curves, by: str, per_client: bool) -> None:
    if per_client:
        lines = [(getattr(curve, by), curve.accuracy) for curve in curves.values()]
    else:
        x, values = latest_values(curves, by)
        lines = [(x, np.nanmean(values, axis=0))]
    for x, accuracy in lines:
        axes.plot(x, accuracy, ds=_draw_style(by), color=BYZANTINE, lw=1.2 if per_client else 2.0, ls=DASHES)


def _draw_style(by: str) -> Literal["steps-post", "default"]:
    """Return the line style: steps over simulated time, because a value holds until the next evaluation."""
    return "steps-post" if by == "time_s" else "default"


def _curve_keys(honest: bool, byzantine: bool, per_client: bool) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = []
    if honest:
        band = "worst to best honest client" if per_client else "10th to 90th percentile of honest clients"
        keys += [Line2D([], [], color=HONEST, lw=2.8, label="honest mean")]
        keys += [Line2D([], [], color=HONEST, lw=0.8, alpha=0.6, label="honest client")] if per_client else []
        keys += [Patch(color=HONEST, alpha=0.13, lw=0, label=band)]
    if byzantine:
        label = "Byzantine client's own model" if per_client else "mean of Byzantine clients' own models"
        keys += [Line2D([], [], color=BYZANTINE, lw=1.6, ls=DASHES, label=label)]
    return keys


def topology_figure(topology: Topology, honest: Curves, name: str, description: str) -> Figure:
    """Draw the graph.

    Colours show the last personal accuracy; rings mark clients outside the threat model.
    """
    num_clients = topology["num_clients"]
    byzantine = sorted(topology["byzantine"])
    others = sorted(set(range(num_clients)) - set(byzantine))
    accuracy = np.array([honest[c].accuracy[-1] if c in honest else np.nan for c in others])
    graph = nx.empty_graph(num_clients)
    graph.add_edges_from(topology["edges"])
    ringed = Neighbourhoods.of(graph, byzantine).outside_threat_model
    positions = graph_layout(graph)

    figure = new_figure(name, description, 8, 6.8)
    axes = figure.subplots()
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()
    axes.margins(0.06)
    stride = math.ceil(graph.number_of_edges() / MAX_LINKS) or 1
    _draw_links(axes, positions, np.array(graph.edges, dtype=np.int64).reshape(-1, 2)[::stride])
    dots = _draw_clients(axes, positions, byzantine, others, accuracy, ringed)
    if np.isfinite(accuracy).any():
        _add_colour_bar(figure, axes, dots)
    if num_clients <= MAX_LABELS:
        colours = dict(zip(others, dots.to_rgba(accuracy), strict=True))
        _label_clients(axes, positions, colours | dict.fromkeys(byzantine, to_rgba(BYZANTINE)))
    keys = _client_keys(len(others), len(byzantine), len(ringed), int(np.isnan(accuracy).sum()))
    if stride > 1:
        keys.append(Line2D([], [], color=MUTED, lw=0.4, label=f"links (1 in {stride} shown)"))
    add_legend(figure, keys, ncols=3, fontsize=10)
    return figure


def _draw_links(axes: Axes, positions: Array, links: NDArray[np.int64]) -> None:
    width = 1.2 if len(positions) <= MAX_LABELS else 0.4
    alpha = min(0.6, 8 / math.sqrt(len(links) + 1))  # many links are drawn faintly
    axes.add_collection(
        LineCollection(list(positions[links]), colors=MUTED, linewidths=width, alpha=alpha, zorder=1)
    )


def _draw_clients(
    axes: Axes, positions: Array, byzantine: list[int], others: list[int], accuracy: Array, ringed: list[int]
) -> PathCollection:
    few = len(positions) <= 4 * MAX_LABELS
    size = float(np.clip(18_000 / len(positions), 6, 520))
    scatter = partial(axes.scatter, s=size, edgecolors="white", linewidths=1.0 if few else 0.2)
    scatter(*positions[byzantine].T, facecolors=BYZANTINE, marker="s", zorder=2)
    colours = mpl.colormaps["viridis"].with_extremes(bad=FAINT)
    dots = scatter(*positions[others].T, c=accuracy, cmap=colours, plotnonfinite=True, zorder=3)
    rings = scatter(*positions[ringed].T, facecolors="none", edgecolors=BYZANTINE, zorder=4)
    rings.set(sizes=[2 * size], linewidths=2.4 if few else 0.8)
    finite = accuracy[np.isfinite(accuracy)] if np.isfinite(accuracy).any() else np.array([0.0, 1.0])
    slack = max(0.0, 0.02 - np.ptp(finite)) / 2  # random differences should not fill the colour range
    dots.set_clim(finite.min() - slack, finite.max() + slack)
    return dots


def _add_colour_bar(figure: Figure, axes: Axes, dots: PathCollection) -> None:
    bar = figure.colorbar(dots, ax=axes, shrink=0.75, aspect=28, pad=0.02)
    bar.set_label("last personal accuracy of honest clients", fontsize=11, color=INK)
    bar.ax.tick_params(labelcolor=MUTED, labelsize=10, length=0)
    bar.outline.set_linewidth(0)


def _label_clients(
    axes: Axes, positions: Array, colours: Mapping[int, tuple[float, float, float, float]]
) -> None:
    write = partial(axes.text, ha="center", va="center_baseline", fontsize=9, fontweight="bold", zorder=5)
    for client, colour in colours.items():
        x, y = positions[client]
        write(x, y, str(client), color=text_colour(colour))


def _client_keys(num_honest: int, num_byzantine: int, num_ringed: int, num_unevaluated: int) -> list[Line2D]:
    dot = partial(Line2D, [], [], ls="", ms=9, marker="o")
    keys = {
        dot(color=mpl.colormaps["viridis"](0.6), label="honest"): num_honest - num_unevaluated,
        dot(color=FAINT, label="honest, never evaluated"): num_unevaluated,
        dot(color=BYZANTINE, marker="s", label="Byzantine"): num_byzantine,
        dot(
            color=BYZANTINE, mfc="none", mew=2, label="honest, at least half of its neighbours Byzantine"
        ): num_ringed,
    }
    for key, num in keys.items():
        key.set_label(f"{key.get_label()} ({num:,})")
    return [key for key, num in keys.items() if num]


MAX_POINTS = 600  # about the width of a panel in pixels

Array: TypeAlias = NDArray[np.float64]


class Curve(NamedTuple):
    """The evaluations of one client in chronological order."""

    time_s: Array
    round: Array
    accuracy: Array


Curves: TypeAlias = dict[int, Curve]


def client_curves(evaluations: Iterable[tuple[Any, ...]]) -> Curves:
    """Return the finite values of each client; an evaluation is (client, time, round, value)."""
    points: dict[int, list[tuple[float, int, float]]] = defaultdict(list)
    for client, time_s, round_, value in evaluations:
        if value is not None and isfinite(value):
            points[client].append((time_s, round_, value))
    return {client: Curve(*np.array(own, dtype=float).T) for client, own in points.items()}


def frame_curves(metrics: pl.DataFrame, column: str = "personal_accuracy") -> Curves:
    """Return the curves of the clients in a frame of `Run.evaluations`."""
    return client_curves(metrics.select("client", "time_s", "round", column).iter_rows())


def honest_mean(metrics: pl.DataFrame) -> tuple[list[float], list[float]]:
    """Return the rounds and the mean accuracy of honest clients in each round."""
    curves = frame_curves(metrics.filter(~metrics["is_byzantine"]))
    if not curves:
        return [], []
    x, values = latest_values(curves, "round")
    return x.tolist(), np.nanmean(values, axis=0).tolist()


def latest_values(curves: Curves, by: str) -> tuple[Array, Array]:
    """Return all evaluation positions, and each client's latest accuracy at them (clients, positions).

    The accuracy is NaN before a client's first evaluation. A client that stopped keeps its last value, so
    that the mean does not jump when a client leaves.
    """
    own = [getattr(curve, by) for curve in curves.values()]
    x = np.unique(np.concatenate(own))
    if len(x) > MAX_POINTS:
        x = np.linspace(x[0], x[-1], MAX_POINTS)
    values = np.full((len(curves), len(x)), np.nan)
    for row, evaluated, curve in zip(values, own, curves.values(), strict=True):
        index = np.searchsorted(evaluated, x, side="right") - 1
        row[index >= 0] = curve.accuracy[index[index >= 0]]
    return x, values


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
