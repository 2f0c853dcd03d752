"""Messages: the space-time diagram, outcomes, age when used, and delay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rdpfl_sim.frames import Run
from rdpfl_sim.reports.html.page import Card
from rdpfl_sim.reports.html.plot import BYZANTINE, HONEST, Plot, axis, bars, compact, escape_markup
from rdpfl_sim.reports.html.spacetime import spacetime_card
from rdpfl_sim.reports.html.tab import RunRecords, no_events, run_tab

OUTCOMES = ("used", "stale", "duplicate", "rejected", "left over", "lost", "in flight")
SENDERS = ((False, "from honest clients", HONEST), (True, "from Byzantine clients", BYZANTINE))
MAX_REASONS = 10
NUM_BINS = 60


@run_tab("Messages", position=40)
def messages_tab(records: RunRecords) -> Sequence[Card]:
    """Show messages in space and time, their ages and their delays."""
    messages = records.messages
    if not messages.height:
        return [no_messages("Messages", records.run)]
    return [spacetime_card(records.run, messages, records.rounds), age_card(messages), delay_card(messages)]


def no_messages(title: str, run: Run) -> Card:
    """Return a card that explains why there are no messages."""
    if not run.has_events:
        return no_events(title, run)
    if run.message_fraction == 0:
        return Card(title, missing="Messages were not recorded: output.message_events is 0.")
    if run.scenario.get("method", {}).get("name") == "local":
        return Card(title, missing="With method local, clients send no messages.")
    return Card(title, missing="No message was sent.")


def outcomes_card(messages: pl.DataFrame) -> Card:
    """Show the number of messages by outcome, reason and role of the sender."""
    outcome_and_reason = pl.concat_str("outcome", "reason", separator=": ", ignore_nulls=True)
    reasons = messages.select("is_byzantine", outcome_and_reason.alias("reason"))
    counts = reasons["reason"].value_counts().sort("count", "reason", descending=[True, False])
    outcomes = [name for name in OUTCOMES if name in set(messages["outcome"])]
    views = {
        "outcomes": _outcome_bars(messages, "outcome", outcomes),
        "reasons": _outcome_bars(reasons, "reason", counts["reason"].head(MAX_REASONS).to_list()),
    }
    text = "Left over: delivered but unread when the run ended. In flight: not delivered when the run ended."
    return Card("Outcomes of messages", text, views)


def _outcome_bars(messages: pl.DataFrame, column: str, labels: list[str]) -> Plot:
    traces = []
    for is_byzantine, name, colour in SENDERS:
        part = messages.filter(pl.col("is_byzantine") == is_byzantine)
        if part.height:
            counts = dict(part[column].value_counts().rows())
            numbers, names = [counts.get(label, 0) for label in labels], [*map(escape_markup, labels)]
            hover = f"%{{x:,}} {name}<extra></extra>"
            traces.append(bars(numbers, names, name, colour, orientation="h", hovertemplate=hover))
    layout = {
        "barmode": "stack",
        "xaxis": axis("messages", showgrid=True),
        "yaxis": {"autorange": "reversed", "showgrid": False},
    }
    return Plot(traces, layout, height=max(380, 110 + 30 * len(labels)))


def age_card(messages: pl.DataFrame) -> Card:
    """Show the age of messages, in rounds, when they were used."""
    used = messages.filter(pl.col("age").is_not_null())
    if not used.height:
        return Card("Age of messages", missing="No message was used.")
    traces = []
    for is_byzantine, name, colour in SENDERS:
        counts = used.filter(pl.col("is_byzantine") == is_byzantine)["age"].value_counts().sort("age")
        if counts.height:
            share = 100 * counts["count"] / counts["count"].sum()
            hover = "age %{x}: %{y} % (messages: %{customdata:,})<extra></extra>"
            ages, numbers = counts["age"].to_list(), counts["count"].to_list()
            traces.append(bars(ages, compact(share), name, colour, customdata=numbers, hovertemplate=hover))
    layout = {
        "barmode": "group",
        "xaxis": axis("age when used (rounds)", dtick=1 if np.ptp(used["age"].to_numpy()) <= 20 else None),
        "yaxis": axis("share of used messages (%)"),
    }
    text = (
        "The recipient's round minus the round stamped on the message; negative if the sender was ahead. "
        "Byzantine clients may forge the stamp."
    )
    return Card("Age of messages", text, {"age": Plot(traces, layout, 360)})


def delay_card(messages: pl.DataFrame) -> Card:
    """Show the delay from sending to delivery."""
    delays = messages.filter(pl.col("delay_s").is_finite())
    if not delays.height:
        return Card("Delay", missing="No message was delivered.")
    all_values = delays["delay_s"].to_numpy()
    edges = _bin_edges(all_values)
    middles, widths = compact((edges[:-1] + edges[1:]) / 2), compact(np.diff(edges))
    ranges = [f"{low:.3g} to {high:.3g} s" for low, high in pairwise(edges)]
    hover = {"customdata": ranges, "hovertemplate": "%{customdata}: %{y:,}<extra></extra>"}
    traces = []
    for is_byzantine, name, colour in SENDERS:
        values = delays.filter(pl.col("is_byzantine") == is_byzantine)["delay_s"].to_numpy()
        if len(values):
            counts, _ = np.histogram(np.minimum(values, edges[-1]), edges)
            traces.append(bars(middles, counts.tolist(), name, colour, opacity=0.85, width=widths, **hover))
    median, p90, p99 = np.percentile(all_values, (50, 90, 99))
    layout = {
        "barmode": "stack",
        "xaxis": axis("delay from sending to delivery (s)"),
        "yaxis": axis("messages"),
        "bargap": 0,
    }
    text = f"Median {median:.3g} s, 90th percentile {p90:.3g} s, 99th percentile {p99:.3g} s."
    if edges[-1] < all_values.max():
        text += f" The last bar includes all longer delays, up to {all_values.max():.3g} s."
    return Card("Delay", text, {"delay": Plot(traces, layout, 360)})


def _bin_edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return equal bins up to the 99th percentile, so that a long tail does not hide the rest."""
    high = float(np.percentile(values, 99)) or float(values.max()) or 1.0
    if values.max() < 1.5 * high:
        return np.linspace(0, max(float(values.max()), 1e-9), NUM_BINS + 1)
    return np.linspace(0, high, NUM_BINS + 1)
