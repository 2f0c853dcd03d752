"""Topology: the graph of clients with roles, accuracies, and the outcomes of messages per link."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rdpfl_sim.reports.figures import graph_layout
from rdpfl_sim.reports.html.page import (
    BYZANTINE,
    INK,
    Card,
    Plot,
    Points,
    Trace,
    chart,
    compact,
    dots,
    line,
    segments,
)
from rdpfl_sim.reports.html.tab import RunRecords, run_tab
from rdpfl_sim.reports.text import score
from rdpfl_sim.results import Run
from rdpfl_sim.world.adversary.threat_model import Neighbourhoods

MAX_LINKS = 3_000
MAX_LABELS = 60
LIGHT, DARK, TRANSPARENT = "#ffffff", "#1d2433", "rgba(0,0,0,0)"
SHADES = (
    (0.02, "@faint", "under 2 %"),
    (0.1, "@sky", "2 to 10 %"),
    (0.3, "@yellow", "10 to 30 %"),
    (0.6, BYZANTINE, "30 to 60 %"),
    (1.01, "@lost", "over 60 %"),
)
"""Upper limit, colour and label for each range of message shares."""
OUTCOMES = ("used", "lost", "stale", "rejected")
COLOUR_BAR = {
    "title": {"text": "accuracy", "side": "right", "font": {"size": 13}},
    "thickness": 12,
    "len": 0.6,
    "outlinewidth": 0,
}


@run_tab("Topology", position=30)
def topology_tab(records: RunRecords) -> Sequence[Card]:
    """Show the graph of clients."""
    return [topology_card(records.run, records.last, records.messages)]


def topology_card(run: Run, last: pl.DataFrame, messages: pl.DataFrame) -> Card:
    """Show the graph with links coloured by the share of lost, or used, messages."""
    if not run.num_clients:
        return Card(
            "Topology", missing="topology.json is missing: the run ended before the topology was built."
        )
    links = _link_counts(run, messages)
    step = -(-links.height // MAX_LINKS) or 1
    drawn = links.gather_every(step)
    positions = graph_layout(run.graph)
    ringed = Neighbourhoods.of(run.graph, run.byzantine).outside_threat_model
    clients = _client_markers(run, last, positions, ringed)
    if messages.height:
        views = {
            f"messages {column}": _figure([*_links_by_share(drawn, positions, column), *clients])
            for column in ("lost", "used")
        }
    else:
        style = {"hoverinfo": "skip"}
        views = {
            "links": _figure([line(*_ends(drawn, positions), "link", "@faint", width=1.5, **style), *clients])
        }
    notes = [f"One in {step} links is drawn."] if step > 1 else []
    if not messages.height:
        notes.append("The records contain no messages, so links are not coloured.")
    if not links["is_initial"].all():
        notes.append("The graph changed during the run; positions are from the initial graph.")
    text = "Circles: honest clients, coloured by their last personal accuracy. Squares: Byzantine clients."
    if ringed:
        text += f" Ringed ({len(ringed)}): honest clients with at least half of their neighbours Byzantine."
    return Card("Topology", text, views, note=" ".join(notes), wide=True)


def _figure(traces: Sequence[Trace]) -> Plot:
    y = {"visible": False, "scaleanchor": "x", "constrain": "domain"}
    margin = {"l": 10, "r": 10, "t": 40, "b": 10}
    return chart(traces, {"visible": False}, y, 620, margin=margin, meta={"scroll": True})


def _link_counts(run: Run, messages: pl.DataFrame) -> pl.DataFrame:
    """Return the initial links and all others that carried messages, with message counts."""
    edges = [sorted(edge) for edge in run.topology["edges"]]
    initial = pl.DataFrame(edges, {"i": pl.Int32, "j": pl.Int32}, orient="row").with_columns(is_initial=True)
    counts = (
        messages.group_by(
            pl.min_horizontal("sender", "recipient").alias("i"),
            pl.max_horizontal("sender", "recipient").alias("j"),
        )
        .agg(pl.len().alias("sent"), *((pl.col("outcome") == name).sum().alias(name) for name in OUTCOMES))
        .sort("i", "j")
    )
    links = pl.concat([initial, counts], how="diagonal").group_by("i", "j", maintain_order=True).sum()
    return links.with_columns(pl.col("is_initial") > 0)


def _links_by_share(links: pl.DataFrame, positions: NDArray[np.float64], column: str) -> list[Trace]:
    """Return one trace per colour, and invisible points at the midpoints of links for hover text."""
    share = (pl.col(column) / pl.col("sent")).fill_nan(0.0)  # a link without messages
    width = 3.0 if links.height <= 200 else 1.2
    opacity = round(min(1.0, 20 / sqrt(links.height + 1)), 2)  # many links are drawn faintly
    traces = []
    low = 0.0
    for high, colour, label in SHADES:
        members = links.filter(share.is_between(low, high, closed="left"))
        if members.height:
            x, y = _ends(members, positions)
            name = f"{column}: {label}"
            traces.append(line(x, y, name, colour, width=width, hoverinfo="skip", opacity=opacity))
        low = high
    columns = ("i", "j", "sent", *OUTCOMES)
    values = "<br>".join(
        f"{name} %{{customdata[{place}]}}" for place, name in enumerate(columns[2:], start=2)
    )
    x, y = positions[links.select("i", "j").to_numpy()].mean(axis=1).T
    midpoints = dots(
        compact(x),
        compact(y),
        "",
        {"size": 12, "color": TRANSPARENT},
        showlegend=False,
        customdata=links.select(columns).rows(),
        hovertemplate=f"<b>clients %{{customdata[0]}} and %{{customdata[1]}}</b><br>{values}<extra></extra>",
    )
    return [*traces, midpoints]


def _ends(links: pl.DataFrame, positions: NDArray[np.float64]) -> tuple[Points, Points]:
    """Return the coordinates of both ends of all links, with gaps."""
    starts, ends = positions[links["i"].to_numpy()].T, positions[links["j"].to_numpy()].T
    return compact(segments(starts[0], ends[0])), compact(segments(starts[1], ends[1]))


def _client_markers(
    run: Run, last: pl.DataFrame, positions: NDArray[np.float64], ringed: list[int]
) -> list[Trace]:
    accuracy: dict[int, float | None] = dict(last.select("client", "personal_accuracy").rows())
    honest = [client for client in range(run.num_clients) if client not in run.byzantine]
    fills = compact(accuracy.get(client) for client in honest)
    known = [fill for fill in fills if fill is not None]
    low, high = min(known, default=0), max(known, default=0)
    size = float(np.clip(130 / sqrt(run.num_clients), 5, 34))
    style: dict[str, object] = {"size": size, "line": {"color": "@ground", "width": 1}}
    circle = {**style, "color": "@faint"}
    if known:
        circle |= {"color": fills, "colorscale": "Viridis", "showscale": True, "colorbar": COLOUR_BAR}
    square = {**style, "symbol": "square", "color": BYZANTINE}
    text_colours = [_text_colour(accuracy.get(client), low, high) for client in honest]
    traces = []
    if ringed:
        ring = {"size": size + 9, "color": TRANSPARENT, "line": {"color": BYZANTINE, "width": 2}}
        traces.append(dots(*_places(ringed, positions), "", ring, hoverinfo="skip", showlegend=False))
    for name, clients, marker, colour in (
        ("honest", honest, circle, text_colours),
        ("Byzantine", sorted(run.byzantine), square, DARK),
    ):
        labels: dict[str, object] = {}
        if len(positions) <= MAX_LABELS:
            font = {"size": max(10, size / 2.6), "color": colour}
            labels = {"mode": "markers+text", "text": [*map(str, clients)], "textfont": font}
        labels["customdata"] = [[client, score(accuracy.get(client))] for client in clients]
        text = f"{name}, accuracy %{{customdata[1]}}<extra></extra>"
        labels["hovertemplate"] = f"<b>client %{{customdata[0]}}</b><br>{text}"
        if clients:
            x, y = _places(clients, positions)
            traces.append(dots(x, y, name, marker, **labels))
    return traces


def _places(clients: list[int], positions: NDArray[np.float64]) -> tuple[Points, Points]:
    x, y = positions[clients].T
    return compact(x), compact(y)


def _text_colour(accuracy: float | None, low: float, high: float) -> str:
    """Return a text colour that is readable on the colour of this accuracy."""
    if accuracy is None or high <= low:
        return INK
    return LIGHT if (accuracy - low) / (high - low) < 0.5 else DARK
