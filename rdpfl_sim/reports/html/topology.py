"""The graph of clients: roles, accuracies, and the outcomes of messages per link."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rdpfl_sim.frames import Run
from rdpfl_sim.reports.graph_layout import graph_layout
from rdpfl_sim.reports.html.page import Card, missing
from rdpfl_sim.reports.html.plot import BYZANTINE, INK, Figure, Trace, compact
from rdpfl_sim.world.adversary.threat_model import Neighbourhoods

MAX_LINKS = 3_000
MAX_LABELS = 60
LIGHT, DARK = "#ffffff", "#1d2433"
SHADES = (
    (0.02, "@faint", "under 2 %"),
    (0.1, "@sky", "2 to 10 %"),
    (0.3, "@yellow", "10 to 30 %"),
    (0.6, BYZANTINE, "30 to 60 %"),
    (1.01, "@lost", "over 60 %"),
)
"""Upper limit, colour and label of shares of messages."""


def topology_card(run: Run, last: pl.DataFrame, messages: pl.DataFrame) -> Card:
    """Show the graph with links coloured by the share of lost, or used, messages."""
    if not run.num_clients:
        return missing("Topology", "topology.json is missing: the run ended before the topology was built.")
    links = _link_counts(run, messages)
    positions = graph_layout(run.graph)
    step = -(-len(links) // MAX_LINKS) or 1
    clients = _client_markers(run, last, positions)
    views = {}
    if messages.height:
        for view, column in (("messages lost", "lost"), ("messages used", "used")):
            views[view] = _figure([*_links_by_share(links[::step], positions, column), *clients])
    else:
        views["links"] = _figure([_uncoloured_links(links[::step], positions), *clients])
    notes = [f"One of {step} links is drawn."] if step > 1 else []
    if not messages.height:
        notes.append("The records contain no messages, so links are not coloured.")
    if any(not link["is_initial"] for link in links):
        notes.append("The graph changed during the run; positions are those of the initial graph.")
    num_ringed = len(Neighbourhoods.of(run.graph, run.byzantine).outside_threat_model)
    text = "Circles: honest clients, coloured by their last personal accuracy. Squares: Byzantine clients."
    if num_ringed:
        text += f" Ringed ({num_ringed}): honest clients with at least half Byzantine neighbours."
    return Card("Topology", text, views, note=" ".join(notes), wide=True)


def _figure(traces: list[Trace]) -> Figure:
    hidden: dict[str, Any] = {"visible": False}
    square = {**hidden, "scaleanchor": "x", "constrain": "domain"}
    margin = {"l": 10, "r": 10, "t": 40, "b": 10}
    return Figure(traces, {"xaxis": hidden, "yaxis": square, "margin": margin, "meta": {"scroll": True}}, 620)


def _link_counts(run: Run, messages: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the initial links and all others that carried messages, with message counts."""
    initial = {tuple(sorted(edge)): None for edge in run.topology["edges"]}
    pair = (pl.min_horizontal("sender", "recipient"), pl.max_horizontal("sender", "recipient"))
    counts = (
        messages.group_by(pair[0].alias("i"), pair[1].alias("j"))
        .agg(
            pl.len().alias("sent"),
            *(
                (pl.col("outcome") == outcome).sum().alias(outcome)
                for outcome in ("lost", "used", "stale", "rejected")
            ),
        )
        .sort("i", "j")
    )
    by_pair = {(row["i"], row["j"]): row for row in counts.iter_rows(named=True)}
    zeros = {"sent": 0, "lost": 0, "used": 0, "stale": 0, "rejected": 0}
    return [
        {**zeros, "i": i, "j": j, **by_pair.get((i, j), {}), "is_initial": (i, j) in initial}
        for i, j in dict.fromkeys([*initial, *by_pair])
    ]


def _links_by_share(links: list[dict[str, Any]], positions: NDArray[np.float64], column: str) -> list[Trace]:
    """Return one trace per colour, and invisible points at the midpoints of links for hover text."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for link in links:
        share = link[column] / link["sent"] if link["sent"] else 0.0
        shade = next(index for index, (limit, _, _) in enumerate(SHADES) if share < limit)
        groups.setdefault(shade, []).append(link)
    width = 3.0 if len(links) <= 200 else 1.2
    opacity = min(1.0, 20 / sqrt(len(links) + 1))  # many links serve as a background
    traces = []
    for shade, members in sorted(groups.items()):
        _, colour, label = SHADES[shade]
        x, y = _segments(members, positions)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": x,
                "y": y,
                "hoverinfo": "skip",
                "line": {"color": colour, "width": width},
                "name": f"{column}: {label}",
                "opacity": round(opacity, 2),
            }
        )
    return [*traces, _midpoints(links, positions)]


def _uncoloured_links(links: list[dict[str, Any]], positions: NDArray[np.float64]) -> Trace:
    x, y = _segments(links, positions)
    style = {"color": "@faint", "width": 1.5}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "hoverinfo": "skip",
        "line": style,
        "name": "link",
    }


def _segments(links: list[dict[str, Any]], positions: NDArray[np.float64]) -> tuple[list[Any], list[Any]]:
    x: list[Any] = []
    y: list[Any] = []
    for link in links:
        (x0, y0), (x1, y1) = positions[link["i"]], positions[link["j"]]
        x += [*compact((x0, x1)), None]
        y += [*compact((y0, y1)), None]
    return x, y


def _midpoints(links: list[dict[str, Any]], positions: NDArray[np.float64]) -> Trace:
    midpoints = np.array([(positions[link["i"]] + positions[link["j"]]) / 2 for link in links]).reshape(-1, 2)
    columns = ("i", "j", "sent", "used", "lost", "stale", "rejected")
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": compact(midpoints[:, 0]),
        "y": compact(midpoints[:, 1]),
        "marker": {"size": 12, "color": "rgba(0,0,0,0)"},
        "customdata": [[link[column] for column in columns] for link in links],
        "hovertemplate": "<b>clients %{customdata[0]} and %{customdata[1]}</b><br>sent %{customdata[2]}"
        "<br>used %{customdata[3]}<br>lost %{customdata[4]}<br>stale %{customdata[5]}"
        "<br>rejected %{customdata[6]}<extra></extra>",
    }


def _client_markers(run: Run, last: pl.DataFrame, positions: NDArray[np.float64]) -> list[Trace]:
    accuracy = dict(last.select("client", "personal_accuracy").rows())
    ringed = Neighbourhoods.of(run.graph, run.byzantine).outside_threat_model
    honest = [client for client in range(run.num_clients) if client not in run.byzantine]
    size = float(np.clip(130 / sqrt(run.num_clients), 5, 34))
    traces = []
    if ringed:
        ring = {"size": size + 9, "color": "rgba(0,0,0,0)", "line": {"color": BYZANTINE, "width": 2}}
        traces.append(
            {**_points(ringed, positions), "marker": ring, "hoverinfo": "skip", "showlegend": False}
        )
    fills = compact(accuracy.get(client) for client in honest)
    bar = {
        "title": {"text": "accuracy", "side": "right", "font": {"size": 13}},
        "thickness": 12,
        "len": 0.6,
        "outlinewidth": 0,
    }
    marker = {"size": size, "color": fills, "colorscale": "Viridis", "line": {"color": "@ground", "width": 1}}
    if any(fill is not None for fill in fills):
        marker |= {"showscale": True, "colorbar": bar}
    else:
        marker |= {"color": "@faint"}
    traces.append(_markers(honest, positions, "honest", marker, accuracy))
    if run.byzantine:
        square = {
            "size": size,
            "symbol": "square",
            "color": BYZANTINE,
            "line": {"color": "@ground", "width": 1},
        }
        traces.append(_markers(sorted(run.byzantine), positions, "Byzantine", square, accuracy))
    if run.num_clients <= MAX_LABELS:
        for trace in traces[-2 if run.byzantine else -1 :]:
            ids = [row[0] for row in trace["customdata"]]
            trace |= {"mode": "markers+text", "text": [str(client) for client in ids]}
            high = max((fill for fill in fills if fill is not None), default=0)
            low = min((fill for fill in fills if fill is not None), default=0)
            colours = [_text_colour(accuracy.get(client), low, high) for client in ids]
            colour = DARK if trace["name"] == "Byzantine" else colours
            trace["textfont"] = {"size": max(10, size / 2.6), "color": colour}
    return traces


def _text_colour(accuracy: float | None, low: float, high: float) -> str:
    """Return a colour that is readable on the accuracy's colour."""
    if accuracy is None or high <= low:
        return INK
    return LIGHT if (accuracy - low) / (high - low) < 0.5 else DARK


def _points(clients: list[int], positions: NDArray[np.float64]) -> Trace:
    x, y = positions[clients].T if clients else ([], [])
    return {"type": "scatter", "mode": "markers", "x": compact(x), "y": compact(y)}


def _markers(
    clients: list[int],
    positions: NDArray[np.float64],
    name: str,
    marker: dict[str, Any],
    accuracy: dict[int, Any],
) -> Trace:
    hover_data = [[client, _accuracy_text(accuracy.get(client))] for client in clients]
    return {
        **_points(clients, positions),
        "name": name,
        "marker": marker,
        "customdata": hover_data,
        "hovertemplate": "<b>client %{customdata[0]}</b><br>"
        f"{name}, accuracy %{{customdata[1]}}<extra></extra>",
    }


def _accuracy_text(accuracy: float | None) -> str:
    return "not evaluated" if accuracy is None else f"{accuracy:.3f}"
