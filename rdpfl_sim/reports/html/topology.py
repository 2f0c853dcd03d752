"""The graph of clients: who is who, how accurate, and what became of the messages on every link."""

from __future__ import annotations

from math import sqrt
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
from numpy.typing import NDArray

from rdpfl_sim.frames import Run
from rdpfl_sim.reports.figures import layout, outnumbered
from rdpfl_sim.reports.html.page import Card, missing
from rdpfl_sim.reports.html.plot import BYZANTINE, INK, Figure, Trace, compact

MAX_LINKS = 3_000
MAX_LABELS = 60
SHADES = (
    (0.02, "@faint", "under 2 %"),
    (0.1, "@sky", "2 to 10 %"),
    (0.3, "@yellow", "10 to 30 %"),
    (0.6, BYZANTINE, "30 to 60 %"),
    (1.01, "@lost", "over 60 %"),
)
"""Colours of links by a share of their messages."""


def topology_card(run: Run, last: pl.DataFrame, messages: pl.DataFrame) -> Card:
    """The graph, its links coloured by messages lost and by messages used."""
    if not run.num_clients:
        return missing("Topology", "topology.json is missing: the run ended before it was built.")
    links = _links(run, messages)
    graph = nx.empty_graph(run.num_clients)
    graph.add_edges_from(run.topology["edges"])
    places = layout(graph)
    every = -(-len(links) // MAX_LINKS) or 1
    clients = _clients(run, last, graph, places)
    views = {}
    if messages.height:
        for view, column in (("messages lost", "lost"), ("messages used", "used")):
            views[view] = _figure([*_shaded(links[::every], places, column), *clients])
    else:
        views["links"] = _figure([_plain(links[::every], places), *clients])
    notes = [f"1 of {every} links is drawn."] if every > 1 else []
    if not messages.height:
        notes.append("What became of messages on the links is not in the records.")
    if any(not link["is_initial"] for link in links):
        notes.append("The graph changed during the run: places are those of its beginning.")
    ringed = len(outnumbered(graph, set(run.byzantine)))
    text = "Circles: honest clients, coloured by their last personal accuracy. Squares: Byzantine ones."
    if ringed:
        text += f" Ringed: at least half of its neighbours are Byzantine ({ringed})."
    return Card("Topology", text, views, note=" ".join(notes), wide=True)


def _figure(traces: list[Trace]) -> Figure:
    plain: dict[str, Any] = {"visible": False}
    square = {**plain, "scaleanchor": "x", "constrain": "domain"}
    margin = {"l": 10, "r": 10, "t": 40, "b": 10}
    return Figure(traces, {"xaxis": plain, "yaxis": square, "margin": margin, "meta": {"scroll": True}}, 620)


def _links(run: Run, messages: pl.DataFrame) -> list[dict[str, Any]]:
    """Every link that there was at the beginning, or over which a message went, with its counts."""
    initial = {tuple(sorted(edge)): None for edge in run.topology["edges"]}
    pair = (pl.min_horizontal("sender", "recipient"), pl.max_horizontal("sender", "recipient"))
    counts = (
        messages.group_by(pair[0].alias("i"), pair[1].alias("j"))
        .agg(
            pl.len().alias("sent"),
            *((pl.col("fate") == fate).sum().alias(fate) for fate in ("lost", "used", "stale", "rejected")),
        )
        .sort("i", "j")
    )
    by_pair = {(row["i"], row["j"]): row for row in counts.iter_rows(named=True)}
    nothing = {"sent": 0, "lost": 0, "used": 0, "stale": 0, "rejected": 0}
    return [
        {**nothing, "i": i, "j": j, **by_pair.get((i, j), {}), "is_initial": (i, j) in initial}
        for i, j in dict.fromkeys([*initial, *by_pair])
    ]


def _shaded(links: list[dict[str, Any]], places: NDArray[np.float64], column: str) -> list[Trace]:
    """A trace for every shade, and invisible points in the middles of links to hover at."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for link in links:
        share = link[column] / link["sent"] if link["sent"] else 0.0
        shade = next(place for place, (limit, _, _) in enumerate(SHADES) if share < limit)
        groups.setdefault(shade, []).append(link)
    width = 3.0 if len(links) <= 200 else 1.2
    opacity = min(1.0, 20 / sqrt(len(links) + 1))  # many links are only a backdrop
    traces = []
    for shade, members in sorted(groups.items()):
        _, colour, words = SHADES[shade]
        x, y = _segments(members, places)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": x,
                "y": y,
                "hoverinfo": "skip",
                "line": {"color": colour, "width": width},
                "name": f"{column}: {words}",
                "opacity": round(opacity, 2),
            }
        )
    return [*traces, _middles(links, places)]


def _plain(links: list[dict[str, Any]], places: NDArray[np.float64]) -> Trace:
    x, y = _segments(links, places)
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


def _segments(links: list[dict[str, Any]], places: NDArray[np.float64]) -> tuple[list[Any], list[Any]]:
    x: list[Any] = []
    y: list[Any] = []
    for link in links:
        (x0, y0), (x1, y1) = places[link["i"]], places[link["j"]]
        x += [*compact((x0, x1)), None]
        y += [*compact((y0, y1)), None]
    return x, y


def _middles(links: list[dict[str, Any]], places: NDArray[np.float64]) -> Trace:
    middles = np.array([(places[link["i"]] + places[link["j"]]) / 2 for link in links]).reshape(-1, 2)
    columns = ("i", "j", "sent", "used", "lost", "stale", "rejected")
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": compact(middles[:, 0]),
        "y": compact(middles[:, 1]),
        "marker": {"size": 12, "color": "rgba(0,0,0,0)"},
        "customdata": [[link[column] for column in columns] for link in links],
        "hovertemplate": "<b>%{customdata[0]} and %{customdata[1]}</b><br>sent %{customdata[2]}"
        "<br>used %{customdata[3]}<br>lost %{customdata[4]}<br>stale %{customdata[5]}"
        "<br>rejected %{customdata[6]}<extra></extra>",
    }


def _clients(run: Run, last: pl.DataFrame, graph: Any, places: NDArray[np.float64]) -> list[Trace]:
    accuracy = dict(last.select("client", "personal_accuracy").rows())
    ringed = outnumbered(graph, set(run.byzantine))
    honest = [client for client in range(run.num_clients) if client not in run.byzantine]
    size = float(np.clip(130 / sqrt(run.num_clients), 5, 34))
    traces = []
    if ringed:
        ring = {"size": size + 9, "color": "rgba(0,0,0,0)", "line": {"color": BYZANTINE, "width": 2}}
        traces.append({**_points(ringed, places), "marker": ring, "hoverinfo": "skip", "showlegend": False})
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
    traces.append(_role(honest, places, "honest", marker, accuracy))
    if run.byzantine:
        square = {
            "size": size,
            "symbol": "square",
            "color": BYZANTINE,
            "line": {"color": "@ground", "width": 1},
        }
        traces.append(_role(sorted(run.byzantine), places, "Byzantine", square, accuracy))
    if run.num_clients <= MAX_LABELS:
        for trace in traces[-2 if run.byzantine else -1 :]:
            ids = [row[0] for row in trace["customdata"]]
            light = trace["name"] == "Byzantine"
            trace |= {"mode": "markers+text", "text": [str(client) for client in ids]}
            top = max((fill for fill in fills if fill is not None), default=0)
            low = min((fill for fill in fills if fill is not None), default=0)
            colours = [_ink(accuracy.get(client), low, top) for client in ids]
            trace["textfont"] = {"size": max(9, size / 2.6), "color": "#1d2433" if light else colours}
    return traces


def _ink(accuracy: float | None, low: float, top: float) -> str:
    """White on the dark half of the colour scale, black on the bright one."""
    if accuracy is None or top <= low:
        return INK
    return "#ffffff" if (accuracy - low) / (top - low) < 0.6 else "#1d2433"


def _points(clients: list[int], places: NDArray[np.float64]) -> Trace:
    x, y = places[clients].T if clients else ([], [])
    return {"type": "scatter", "mode": "markers", "x": compact(x), "y": compact(y)}


def _role(
    clients: list[int],
    places: NDArray[np.float64],
    name: str,
    marker: dict[str, Any],
    accuracy: dict[int, Any],
) -> Trace:
    told = [[client, _told(accuracy.get(client))] for client in clients]
    return {
        **_points(clients, places),
        "name": name,
        "marker": marker,
        "customdata": told,
        "hovertemplate": "<b>client %{customdata[0]}</b><br>"
        f"{name}, accuracy %{{customdata[1]}}<extra></extra>",
    }


def _told(accuracy: float | None) -> str:
    return "not evaluated" if accuracy is None else f"{accuracy:.3f}"
