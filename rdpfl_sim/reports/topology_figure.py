"""The graph of a run's clients: honest ones coloured by accuracy, Byzantine ones as squares."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from rdpfl_sim.records.reader import Topology
from rdpfl_sim.reports.accuracy_curves import Array, Curves
from rdpfl_sim.reports.figure_style import BYZANTINE, FAINT, INK, LEGEND, MUTED, new_figure
from rdpfl_sim.reports.graph_layout import graph_layout
from rdpfl_sim.world.adversary.threat_model import Neighbourhoods

MAX_LABELS = 50
MAX_LINKS = 20_000  # more would only blacken the figure


def topology_figure(topology: Topology, honest: Curves, name: str, description: str) -> Figure:
    """Draw the graph; colours show the last personal accuracy, rings clients outside the threat model."""
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
    keys = _legend(len(others), len(byzantine), len(ringed), int(np.isnan(accuracy).sum()))
    if stride > 1:
        keys.append(Line2D([], [], color=MUTED, lw=0.4, label=f"link (1 of {stride} is drawn)"))
    figure.legend(handles=keys, ncols=3, fontsize=10, **LEGEND)
    return figure


def _draw_links(axes: Axes, positions: Array, links: NDArray[np.int64]) -> None:
    width = 1.2 if len(positions) <= MAX_LABELS else 0.4
    alpha = min(0.6, 8 / math.sqrt(len(links) + 1))  # many links are only a backdrop
    axes.add_collection(
        LineCollection(list(positions[links]), colors=MUTED, linewidths=width, alpha=alpha, zorder=1)
    )


def _draw_clients(
    axes: Axes, positions: Array, byzantine: list[int], others: list[int], accuracy: Array, ringed: list[int]
) -> PathCollection:
    few = len(positions) <= 4 * MAX_LABELS
    size = float(np.clip(18_000 / len(positions), 6, 520))
    style: dict[str, Any] = {"s": size, "edgecolors": "white", "linewidths": 1.0 if few else 0.2}
    axes.scatter(*positions[byzantine].T, facecolors=BYZANTINE, marker="s", zorder=2, **style)
    style |= {"c": accuracy, "cmap": mpl.colormaps["viridis"].with_extremes(bad=FAINT), "plotnonfinite": True}
    dots = axes.scatter(*positions[others].T, zorder=3, **style)
    style = {"s": 2 * size, "facecolors": "none", "edgecolors": BYZANTINE, "linewidths": 2.4 if few else 0.8}
    axes.scatter(*positions[ringed].T, zorder=4, **style)
    finite = accuracy[np.isfinite(accuracy)] if np.isfinite(accuracy).any() else np.array([0.0, 1.0])
    slack = max(0.0, 0.02 - np.ptp(finite)) / 2  # differences by chance should not fill the colour range
    dots.set_clim(finite.min() - slack, finite.max() + slack)
    return dots


def _add_colour_bar(figure: Figure, axes: Axes, dots: PathCollection) -> None:
    bar = figure.colorbar(dots, ax=axes, shrink=0.75, aspect=28, pad=0.02)
    bar.set_label("last personal accuracy of honest clients", fontsize=11, color=INK)
    bar.ax.tick_params(labelcolor=MUTED, labelsize=10, length=0)
    bar.outline.set_linewidth(0)


def _label_clients(axes: Axes, positions: Array, colours: dict[int, Any]) -> None:
    style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 9, "fontweight": "bold"}
    for client, (red, green, blue, _) in colours.items():
        is_dark = 0.30 * red + 0.59 * green + 0.11 * blue < 0.55
        x, y = positions[client]
        axes.text(x, y, str(client), color="white" if is_dark else INK, zorder=5, **style)


def _legend(num_honest: int, num_byzantine: int, num_ringed: int, num_unevaluated: int) -> list[Line2D]:
    dot: dict[str, Any] = {"marker": "o", "ls": "", "ms": 9}
    ring: dict[str, Any] = {"color": BYZANTINE, "mfc": "none", "mew": 2}
    keys: list[tuple[int, str, dict[str, Any]]] = [
        (num_honest - num_unevaluated, "honest", {"color": mpl.colormaps["viridis"](0.6)}),
        (num_unevaluated, "honest, never evaluated", {"color": FAINT}),
        (num_byzantine, "Byzantine", {"color": BYZANTINE, "marker": "s"}),
        (num_ringed, "honest, at least half of its neighbours Byzantine", ring),
    ]
    return [Line2D([], [], label=f"{text} ({num:,})", **dot | style) for num, text, style in keys if num]
