"""Outcomes of messages, their age when used, and their delay."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from rdpfl_sim.reports.html.page import Card, missing
from rdpfl_sim.reports.html.plot import BYZANTINE, HONEST, Figure, Trace, axis, compact, escape_markup

OUTCOMES = ("used", "stale", "duplicate", "rejected", "left over", "lost", "in flight")
SENDERS = ((False, "from honest clients", HONEST), (True, "from Byzantine clients", BYZANTINE))
MAX_REASONS = 10
NUM_BINS = 60


def outcomes_card(messages: pl.DataFrame) -> Card:
    """Show how many messages had each outcome, and for which reason, by role of the sender."""
    reasons = messages.with_columns(
        pl.when(pl.col("reason").is_null())
        .then(pl.col("outcome"))
        .otherwise(pl.col("outcome") + ": " + pl.col("reason"))
        .alias("outcome_and_reason")
    )
    counts = reasons["outcome_and_reason"].value_counts()
    most_frequent = counts.sort("count", "outcome_and_reason", descending=[True, False]).head(MAX_REASONS)
    views = {
        "outcomes": _bars(
            messages, "outcome", [name for name in OUTCOMES if name in set(messages["outcome"])]
        ),
        "reasons": _bars(reasons, "outcome_and_reason", most_frequent["outcome_and_reason"].to_list()),
    }
    text = "Left over: delivered but unread when the run ended. In flight: not delivered when the run ended."
    return Card("Outcomes of messages", text, views)


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
                    "y": [escape_markup(label) for label in labels],
                    "x": numbers,
                    "hovertemplate": f"%{{x:,}} {name}<extra></extra>",
                }
            )
    layout = {
        "barmode": "stack",
        "xaxis": axis("messages", showgrid=True),
        "yaxis": {"autorange": "reversed", "showgrid": False},
    }
    return Figure(traces, layout, height=max(380, 110 + 30 * len(labels)))


def age_card(messages: pl.DataFrame) -> Card:
    """Show the age of messages, in rounds, when they were used."""
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
        "xaxis": axis("age when used (rounds)", dtick=1 if _has_few_ages(used) else None),
        "yaxis": axis("share of used messages (%)"),
    }
    text = (
        "The recipient's round minus the round stamped on the message; negative if the sender was ahead. "
        "Byzantine clients may forge the stamp."
    )
    return Card("Age of messages", text, {"age": Figure(traces, layout, 360)})


def _has_few_ages(used: pl.DataFrame) -> bool:
    low, high = used.select(pl.col("age").min().alias("low"), pl.col("age").max().alias("high")).row(0)
    return bool(high - low <= 20)


def delay_card(messages: pl.DataFrame) -> Card:
    """Show how long messages took from sending to delivery."""
    delays = messages.filter(pl.col("delay_s").is_finite())
    if not delays.height:
        return missing("Delay", "No message was delivered.")
    all_values = delays["delay_s"].to_numpy()
    edges = _bin_edges(all_values)
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
        "xaxis": axis("delay from sending to delivery (s)"),
        "yaxis": axis("messages"),
        "bargap": 0,
    }
    text = f"Median {median:.3g} s, 90th percentile {p90:.3g} s, 99th percentile {p99:.3g} s."
    if edges[-1] < all_values.max():
        text += f" The last bar includes all longer delays, up to {all_values.max():.3g} s."
    return Card("Delay", text, {"delay": Figure(traces, layout, 360)})


def _bin_edges(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return equal bins up to the 99th percentile, so that a long tail does not hide the rest."""
    high = float(np.percentile(values, 99)) or float(values.max()) or 1.0
    if values.max() < 1.5 * high:
        return np.linspace(0, max(float(values.max()), 1e-9), NUM_BINS + 1)
    return np.linspace(0, high, NUM_BINS + 1)
