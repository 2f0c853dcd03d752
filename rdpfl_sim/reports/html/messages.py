"""What became of messages: their fates, how old they were when used, how long they were under way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from rdpfl_sim.reports.html.page import Card, missing
from rdpfl_sim.reports.html.plot import BYZANTINE, HONEST, Figure, Trace, axis, compact, safe

FATES = ("used", "stale", "duplicate", "rejected", "left over", "lost", "in flight")
SENDERS = ((False, "from honest clients", HONEST), (True, "from Byzantine clients", BYZANTINE))
MAX_REASONS = 12
NUM_BINS = 60


def fates_card(messages: pl.DataFrame) -> Card:
    """How many messages had which fate, and for which reason, by who sent them."""
    reasons = messages.with_columns(
        pl.when(pl.col("reason").is_null())
        .then(pl.col("fate"))
        .otherwise(pl.col("fate") + ": " + pl.col("reason"))
        .alias("why")
    )
    by_reason = reasons["why"].value_counts().sort("count", "why", descending=[True, False])["why"]
    views = {
        "fates": _bars(messages, "fate", [fate for fate in FATES if fate in set(messages["fate"])]),
        "reasons": _bars(reasons, "why", by_reason.head(MAX_REASONS).to_list()),
    }
    text = "Left over: arrived, but nobody looked at it any more. In flight: still under way at the end."
    return Card("Fates", text, views)


def _bars(messages: pl.DataFrame, column: str, labels: list[str]) -> Figure:
    traces = []
    for is_byzantine, name, colour in SENDERS:
        part = messages.filter(pl.col("is_byzantine") == is_byzantine)
        if part.height:
            counts = dict(part[column].value_counts().rows())
            numbers = [counts.get(label, 0) for label in labels]
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": name,
                    "marker": {"color": colour},
                    "y": [safe(label) for label in labels],
                    "x": numbers,
                    "hovertemplate": f"%{{x:,}} {name}<extra></extra>",
                }
            )
    layout = {
        "barmode": "stack",
        "xaxis": axis("messages", showgrid=True),
        "yaxis": {"autorange": "reversed", "showgrid": False},
    }
    return Figure(traces, layout, height=130 + 46 * max(3, len(labels)))


def age_card(messages: pl.DataFrame) -> Card:
    """How many rounds old messages were when they were used."""
    used = messages.filter(pl.col("age").is_not_null())
    if not used.height:
        return missing("Age of messages", "No message was used.")
    traces = []
    for is_byzantine, name, colour in SENDERS:
        counts = used.filter(pl.col("is_byzantine") == is_byzantine)["age"].value_counts().sort("age")
        if counts.height:
            share = 100 * counts["count"] / counts["count"].sum()
            traces.append(
                {
                    "type": "bar",
                    "name": name,
                    "marker": {"color": colour},
                    "x": counts["age"].to_list(),
                    "y": compact(share),
                    "customdata": counts["count"].to_list(),
                    "hovertemplate": "age %{x}: %{customdata:,} messages, %{y} %<extra></extra>",
                }
            )
    layout = {
        "barmode": "group",
        "xaxis": axis("age when used (rounds)", dtick=1 if _few(used) else None),
        "yaxis": axis("share of used messages (%)"),
    }
    text = (
        "The recipient's round minus the stamp of the message: below 0, the sender was ahead. "
        "A Byzantine sender may stamp what it likes."
    )
    return Card("Age of messages", text, {"age": Figure(traces, layout, 360)})


def _few(used: pl.DataFrame) -> bool:
    low, high = used.select(pl.col("age").min().alias("low"), pl.col("age").max().alias("high")).row(0)
    return bool(high - low <= 20)


def delay_card(messages: pl.DataFrame) -> Card:
    """How long messages were under way."""
    delays = messages.filter(pl.col("delay_s").is_finite())
    if not delays.height:
        return missing("Delay", "No message has arrived.")
    all_values = delays["delay_s"].to_numpy()
    edges = _edges(all_values)
    traces: list[Trace] = []
    for is_byzantine, name, colour in SENDERS:
        values = delays.filter(pl.col("is_byzantine") == is_byzantine)["delay_s"].to_numpy()
        if len(values):
            counts, _ = np.histogram(np.minimum(values, edges[-1]), edges)
            ranges = [f"{a:.3g} to {b:.3g} s" for a, b in pairwise(edges)]
            traces.append(
                {
                    "type": "bar",
                    "name": name,
                    "marker": {"color": colour},
                    "opacity": 0.85,
                    "x": compact((edges[:-1] + edges[1:]) / 2),
                    "width": compact(np.diff(edges)),
                    "y": counts.tolist(),
                    "customdata": ranges,
                    "hovertemplate": "%{customdata}: %{y:,}<extra></extra>",
                }
            )
    median, p90, p99 = np.percentile(all_values, (50, 90, 99))
    layout: dict[str, Any] = {
        "barmode": "stack",
        "xaxis": axis("delay from sending to arrival (s)"),
        "yaxis": axis("messages"),
        "bargap": 0,
    }
    text = f"Median {median:.3g} s, nine of ten within {p90:.3g} s, 99 of 100 within {p99:.3g} s."
    if edges[-1] < all_values.max():
        text += f" The last bar holds all above; the longest took {all_values.max():.3g} s."
    return Card("Delay", text, {"delay": Figure(traces, layout, 360)})


def _edges(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Equal bins up to the 99th percentile, so that a long tail does not press all into one bar."""
    high = float(np.percentile(values, 99)) or float(values.max()) or 1.0
    if values.max() < 1.5 * high:
        return np.linspace(0, max(float(values.max()), 1e-9), NUM_BINS + 1)
    return np.linspace(0, high, NUM_BINS + 1)
