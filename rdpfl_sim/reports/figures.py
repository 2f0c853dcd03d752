"""The pictures of a run, drawn from the files in its folder: how accuracy went, and who sat where.

Figures are built without pyplot, so drawing touches no global state and needs no display.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from io import TextIOWrapper
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, NamedTuple, TypeAlias

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

from rdpfl_sim.records import run_folder as folder
from rdpfl_sim.records.run_folder import SUMMARY, read_json, read_json_if_there
from rdpfl_sim.system.files import open_atomic, open_inside, remove_partial

CURVES, TOPOLOGY = "curves.png", "topology.png"

Array: TypeAlias = NDArray[np.float64]

# Blue and vermilion of Okabe and Ito's palette: distinct in every common form of colour blindness.
HONEST, BYZANTINE = "#0072B2", "#D55E00"
INK, MUTED, FAINT = "#222222", "#6B6B6B", "#E4E4E4"
DASHES = (0, (4, 2))
LEGEND: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "labelcolor": INK}

MAX_LINES = 12  # with more clients than this, a line for each is clutter
MAX_LABELS = 50
MAX_LINKS = 20_000  # more only blacken the picture, and take long
MAX_EXACT_LAYOUT = 150  # Kamada-Kawai takes about a second here, and grows with the square
MAX_POINTS = 600  # about as many as a panel has pixels
LAYOUT_PAD = 3 / 72  # inches that the constrained layout leaves at the edge, by default


class Curve(NamedTuple):
    """One client's evaluations, in the order in which they happened."""

    time_s: Array
    round: Array
    accuracy: Array


Curves: TypeAlias = dict[int, Curve]


def are_up_to_date(run_dir: Path) -> bool:
    """Whether the pictures of a run were drawn after its end."""
    end_ns = (run_dir / SUMMARY).stat().st_mtime_ns
    paths = [run_dir / name for name in (CURVES, TOPOLOGY)]
    return all(path.exists() and path.stat().st_mtime_ns >= end_ns for path in paths)


def draw(run_dir: Path) -> list[Path]:
    """The paths of the pictures written into `run_dir`: `curves.png` and `topology.png`."""
    for name in (CURVES, TOPOLOGY):
        remove_partial(run_dir / name)
    honest, byzantine = read_curves(run_dir / "metrics.csv")
    topology = read_json(run_dir / folder.TOPOLOGY)
    summary = read_json_if_there(run_dir / SUMMARY)  # a run that was cut short has none
    title = _title(summary or {"name": run_dir.name}, topology)
    return [
        save(curves_figure(honest, byzantine, title), run_dir / CURVES),
        save(topology_figure(topology, honest, title), run_dir / TOPOLOGY),
    ]


def read_curves(path: Path) -> tuple[Curves, Curves]:
    """Personal accuracy of the honest clients and of the Byzantine ones, wherever it is finite."""
    points: tuple[dict[int, list[tuple[float, float, float]]], ...] = (defaultdict(list), defaultdict(list))
    with TextIOWrapper(open_inside(path), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            accuracy = float(row["personal_accuracy"] or "nan")
            if math.isfinite(accuracy):
                point = float(row["time_s"]), float(row["round"]), accuracy
                points[int(row["byzantine"])][int(row["client"])].append(point)
    honest, byzantine = ({c: Curve(*np.array(p).T) for c, p in group.items()} for group in points)
    return honest, byzantine


def latest(curves: Curves, by: str) -> tuple[Array, Array]:
    """Where clients were evaluated (x), and the latest accuracy there of each client (clients, x).

    It is NaN before a client's first evaluation. A client that stopped keeps its last value, so that
    the mean does not jump because its members changed.
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


def curves_figure(honest: Curves, byzantine: Curves, title: tuple[str, str]) -> Figure:
    """Personal accuracy by round and by simulated time."""
    figure = new_figure(title, 12, 4.8)
    panels = figure.subplots(1, 2, sharey=True)
    each = len(honest) + len(byzantine) <= MAX_LINES
    for axes, by, label in zip(panels, ("round", "time_s"), ("round", "simulated time (s)"), strict=True):
        style_axes(axes)
        axes.set_xlabel(label, fontsize=12, color=INK)
        if label == "round":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if byzantine:
            _draw_byzantine(axes, byzantine, by, each)
        if honest:
            _draw_honest(axes, honest, by, each)
        if not honest and not byzantine:
            axes.set(xticks=[], yticks=[])
            axes.text(0.5, 0.5, "no evaluations", transform=axes.transAxes, ha="center", color=MUTED)
    panels[0].set_ylabel("personal accuracy", fontsize=12, color=INK)
    panels[0].set_ylim(top=min(panels[0].get_ylim()[1], 1.005))
    figure.legend(handles=_curve_keys(honest, byzantine, each), ncols=4, fontsize=11, **LEGEND)
    return figure


def _draw_honest(axes: Axes, curves: Curves, by: str, each: bool) -> None:
    x, values = latest(curves, by)
    low, high = np.nanpercentile(values, [0, 100] if each else [10, 90], axis=0)
    axes.fill_between(x, low, high, step="post" if by == "time_s" else None, color=HONEST, alpha=0.13, lw=0)
    for curve in curves.values() if each else ():
        axes.plot(getattr(curve, by), curve.accuracy, ds=_steps(by), color=HONEST, lw=0.8, alpha=0.45)
    mean = np.nanmean(values, axis=0)
    axes.plot(x, mean, ds=_steps(by), color=HONEST, lw=2.8)
    axes.annotate(
        f"{mean[-1]:.3f}",
        (x[-1], mean[-1]),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        color=HONEST,
        fontsize=12,
        fontweight="bold",
    )


def _draw_byzantine(axes: Axes, curves: Curves, by: str, each: bool) -> None:
    if each:
        lines = [(getattr(curve, by), curve.accuracy) for curve in curves.values()]
    else:
        x, values = latest(curves, by)
        lines = [(x, np.nanmean(values, axis=0))]
    for x, accuracy in lines:
        axes.plot(x, accuracy, ds=_steps(by), color=BYZANTINE, lw=1.2 if each else 2.0, ls=DASHES)


def _curve_keys(honest: Curves, byzantine: Curves, each: bool) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = []
    if honest:
        band = "worst to best honest client" if each else "10th to 90th percentile of honest clients"
        keys += [Line2D([], [], color=HONEST, lw=2.8, label="honest mean")]
        keys += [Line2D([], [], color=HONEST, lw=0.8, alpha=0.6, label="honest client")] if each else []
        keys += [Patch(color=HONEST, alpha=0.13, lw=0, label=band)]
    if byzantine:
        label = "Byzantine client's own model" if each else "Byzantine clients' own models, mean"
        keys += [Line2D([], [], color=BYZANTINE, lw=1.6, ls=DASHES, label=label)]
    return keys


def topology_figure(topology: dict[str, Any], honest: Curves, title: tuple[str, str]) -> Figure:
    """The graph of clients: honest ones coloured by their last personal accuracy, Byzantine ones marked."""
    num_clients: int = topology["num_clients"]
    byzantine = sorted(topology["byzantine"])
    others = sorted(set(range(num_clients)) - set(byzantine))
    accuracy = np.array([honest[c].accuracy[-1] if c in honest else np.nan for c in others])
    graph = nx.empty_graph(num_clients)
    graph.add_edges_from(topology["edges"])
    ringed = outnumbered(graph, set(byzantine))
    places = layout(graph)

    figure = new_figure(title, 8, 6.8)
    axes = figure.subplots()
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()
    axes.margins(0.06)
    every = math.ceil(graph.number_of_edges() / MAX_LINKS) or 1
    _draw_links(axes, places, np.array(graph.edges, dtype=np.int64).reshape(-1, 2)[::every])
    dots = _draw_clients(axes, places, byzantine, others, accuracy, ringed)
    if np.isfinite(accuracy).any():
        _add_colour_bar(figure, axes, dots)
    if num_clients <= MAX_LABELS:
        fills = dict.fromkeys(byzantine, to_rgba(BYZANTINE)) | dict(
            zip(others, dots.to_rgba(accuracy), strict=True)
        )
        _label_clients(axes, places, fills)
    keys = _topology_keys(len(others), len(byzantine), len(ringed), int(np.isnan(accuracy).sum()))
    if every > 1:
        keys.append(Line2D([], [], color=MUTED, lw=0.4, label=f"link (1 of {every} is drawn)"))
    figure.legend(handles=keys, ncols=3, fontsize=10, **LEGEND)
    return figure


def _draw_clients(
    axes: Axes, places: Array, byzantine: list[int], others: list[int], accuracy: Array, ringed: list[int]
) -> PathCollection:
    few = len(places) <= 4 * MAX_LABELS
    size = float(np.clip(18_000 / len(places), 6, 520))
    style: dict[str, Any] = {"s": size, "edgecolors": "white", "linewidths": 1.0 if few else 0.2}
    axes.scatter(*places[byzantine].T, facecolors=BYZANTINE, marker="s", zorder=2, **style)
    style |= {"c": accuracy, "cmap": mpl.colormaps["viridis"].with_extremes(bad=FAINT), "plotnonfinite": True}
    dots = axes.scatter(*places[others].T, zorder=3, **style)
    style = {"s": 2 * size, "facecolors": "none", "edgecolors": BYZANTINE, "linewidths": 2.4 if few else 0.8}
    axes.scatter(*places[ringed].T, zorder=4, **style)
    seen = accuracy[np.isfinite(accuracy)] if np.isfinite(accuracy).any() else np.array([0.0, 1.0])
    slack = max(0.0, 0.02 - np.ptp(seen)) / 2  # noise should not be painted in every colour
    dots.set_clim(seen.min() - slack, seen.max() + slack)
    return dots


def _draw_links(axes: Axes, places: Array, ends: NDArray[np.int64]) -> None:
    style: dict[str, Any] = {"colors": MUTED, "linewidths": 1.2 if len(places) <= MAX_LABELS else 0.4}
    alpha = min(0.6, 8 / math.sqrt(len(ends) + 1))  # many links are only a backdrop
    axes.add_collection(LineCollection(list(places[ends]), alpha=alpha, zorder=1, **style))


def _add_colour_bar(figure: Figure, axes: Axes, dots: PathCollection) -> None:
    bar = figure.colorbar(dots, ax=axes, shrink=0.75, aspect=28, pad=0.02)
    bar.set_label("last personal accuracy of honest clients", fontsize=11, color=INK)
    bar.ax.tick_params(labelcolor=MUTED, labelsize=10, length=0)
    bar.outline.set_linewidth(0)


def _label_clients(axes: Axes, places: Array, fills: dict[int, Any]) -> None:
    style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 9, "fontweight": "bold"}
    for client, (red, green, blue, _) in fills.items():
        dark = 0.30 * red + 0.59 * green + 0.11 * blue < 0.55
        x, y = places[client]
        axes.text(x, y, str(client), color="white" if dark else INK, zorder=5, **style)


def _topology_keys(num_honest: int, num_byzantine: int, num_ringed: int, num_silent: int) -> list[Line2D]:
    dot: dict[str, Any] = {"marker": "o", "ls": "", "ms": 9}
    ring: dict[str, Any] = {"color": BYZANTINE, "mfc": "none", "mew": 2}
    keys: list[tuple[int, str, dict[str, Any]]] = [
        (num_honest - num_silent, "honest", {"color": mpl.colormaps["viridis"](0.6)}),
        (num_silent, "honest, never evaluated", {"color": FAINT}),
        (num_byzantine, "Byzantine", {"color": BYZANTINE, "marker": "s"}),
        (num_ringed, "honest, at least half its neighbours Byzantine", ring),
    ]
    return [Line2D([], [], label=f"{text} ({num:,})", **dot | style) for num, text, style in keys if num]


def outnumbered(graph: nx.Graph, byzantine: set[int]) -> list[int]:
    """The honest clients of whose neighbours at least half are Byzantine: outside the threat model."""
    return [
        client
        for client, degree in graph.degree
        if client not in byzantine and 2 * len(byzantine.intersection(graph[client])) >= degree > 0
    ]


def layout(graph: nx.Graph) -> Array:
    """A place for every client (clients, 2), the same whenever it is called.

    The components stand on shelves, the largest first, each on an area that suits its size.
    """
    components = sorted(nx.connected_components(graph), key=lambda members: (-len(members), min(members)))
    places = np.zeros((len(graph), 2))
    # Twice an area of squares with a margin of 1: wide enough for two equal components side by side.
    shelf = math.sqrt(2.1 * sum((2 * math.sqrt(len(members) - 1) + 1) ** 2 for members in components))
    left = top = depth = 0.0
    for members in components:
        # Copied, since views are slow to walk, but not without need, since that is slow too.
        part = graph if len(components) == 1 else nx.Graph(graph.subgraph(members))
        component = _component_layout(part)
        xy = np.array(list(component.values()), dtype=np.float64)
        xy -= xy.min(axis=0)
        xy *= 2 * math.sqrt(len(xy) - 1) / max(xy.max(), 1e-9)
        width, height = xy.max(axis=0) + 1
        if left > 0 and left + width > shelf:
            left, top, depth = 0.0, top - depth, 0.0
        places[list(component)] = xy + np.array([left, top - height])
        left, depth = left + width, max(depth, height)
    return places


def _component_layout(graph: nx.Graph) -> dict[int, Any]:
    num_clients, degrees = len(graph), {degree for _, degree in graph.degree}
    hub = max(graph, key=graph.degree)
    if degrees == {2}:
        return _circle(list(nx.dfs_preorder_nodes(graph, min(graph))))
    if degrees == {num_clients - 1}:
        return _circle(sorted(graph))
    if graph.number_of_edges() == graph.degree(hub):
        return {hub: (0, 0)} | _circle([client for client in sorted(graph) if client != hub])
    if columns := _grid_columns(graph):
        return {client: (i % columns, -(i // columns)) for i, client in enumerate(sorted(graph))}
    if num_clients <= MAX_EXACT_LAYOUT:
        places: dict[int, Any] = nx.kamada_kawai_layout(graph)
        return places
    return _scaled_distances(graph)


def _circle(order: list[int]) -> dict[int, Any]:
    """The clients clockwise in this order, the first at the top."""
    angles = 2 * np.pi * np.arange(len(order)) / len(order)
    return dict(zip(order, np.stack([np.sin(angles), np.cos(angles)], axis=1), strict=True))


def _grid_columns(graph: nx.Graph) -> int | None:
    """The number of columns, if the clients in the order of their ids fill a grid (or a line) row by row."""
    order, links = sorted(graph), {tuple(sorted(edge)) for edge in graph.edges}
    for columns in (c for c in range(2, len(order) + 1) if len(order) % c == 0):
        beside = {(order[i], order[i + 1]) for i in range(len(order) - 1) if (i + 1) % columns}
        if links == beside | set(zip(order, order[columns:], strict=False)):
            return columns
    return None


def _scaled_distances(graph: nx.Graph, num_pivots: int = 50) -> dict[int, Any]:
    """Places whose distances resemble hop counts, in time linear in the links.

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
    places = u[:, :2] * s[:2]
    # Leaves of one hub have equal distances and would hide each other.
    places += np.random.default_rng(0).normal(scale=0.02 * np.ptp(places), size=places.shape)
    return dict(zip(clients, places, strict=True))


def style_axes(axes: Axes) -> None:
    """Horizontal lines only, and quiet labels."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(labelcolor=MUTED, labelsize=11, length=0, labelleft=True)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)


def _steps(by: str) -> Literal["steps-post", "default"]:
    """Simulated time passes between evaluations, so there the latest value holds until the next."""
    return "steps-post" if by == "time_s" else "default"


def new_figure(title: tuple[str, str], width: float, height: float) -> Figure:
    """An empty figure with a title: what it is called, and on up to three more lines what it is."""
    figure = Figure(figsize=(width, height), layout="constrained")
    name = _cut(title[0], int(8 * width))
    facts = "\n".join(wrap(title[1], int(11 * width), max_lines=3, placeholder=" ..."))
    style: dict[str, Any] = {"x": 0.012, "ha": "left", "va": "top", "fontsize": 12, "parse_math": False}
    # The facts begin on the second line, below the name; the layout makes room for the suptitle.
    figure.suptitle(f"\n{facts}", color=MUTED, **style)
    figure.text(y=1 - LAYOUT_PAD / height, s=f"{name}\n", color=INK, fontweight="bold", **style)
    return figure


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _title(summary: dict[str, Any], topology: dict[str, Any]) -> tuple[str, str]:
    facts = [f"{key} {summary[key]}" for key in ("method", "attack", "topology") if summary.get(key)]
    facts += [f"{topology['num_clients']:,} clients, {len(topology['byzantine']):,} Byzantine"]
    return summary["name"], ", ".join(facts)


def save(figure: Figure, path: Path) -> Path:
    """Write the whole picture or none: a reader never sees half of one."""
    with open_atomic(path) as file:
        figure.savefig(file, dpi=100, format="png")
    return path
