"""Messages: the space-time diagram, outcomes, age when used, and delay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise

import networkx as nx
import numpy as np
import polars as pl
from numpy.typing import NDArray

from rdpfl_sim.records.reader import Record
from rdpfl_sim.records.summary import OUTCOMES
from rdpfl_sim.reports.html.page import (
    BYZANTINE,
    HONEST,
    Card,
    Plot,
    Trace,
    axis,
    bars,
    chart,
    compact,
    escape_markup,
    line,
    round_times,
    segments,
)
from rdpfl_sim.reports.html.tab import RunRecords, no_events, run_tab
from rdpfl_sim.results import Run

FATES = (*OUTCOMES, "left over", "lost", "in flight")
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
    outcomes = [name for name in FATES if name in set(messages["outcome"])]
    views = {
        "outcomes": _outcome_bars(messages, "outcome", outcomes),
        "reasons": _outcome_bars(reasons, "reason", counts["reason"].head(MAX_REASONS).to_list()),
    }
    text = "Left over: delivered but unread when the run ended. In flight: not delivered when the run ended."
    return Card("Outcomes of messages", text, views)


def _outcome_bars(messages: pl.DataFrame, column: str, labels: list[str]) -> Plot:
    traces = []
    for part, name, colour in _by_sender(messages):
        counts = dict(part[column].value_counts().rows())
        numbers, names = [counts.get(label, 0) for label in labels], [*map(escape_markup, labels)]
        hover = f"%{{x:,}} {name}<extra></extra>"
        traces.append(bars(numbers, names, name, colour, orientation="h", hovertemplate=hover))
    x, y = axis("messages", showgrid=True), {"autorange": "reversed", "showgrid": False}
    return chart(traces, x, y, max(380, 110 + 30 * len(labels)), barmode="stack")


def _by_sender(messages: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, str, str]]:
    """Yield the messages of each role of the sender that occurs, its name and its colour."""
    for is_byzantine, name, colour in SENDERS:
        part = messages.filter(pl.col("is_byzantine") == is_byzantine)
        if part.height:
            yield part, name, colour


def age_card(messages: pl.DataFrame) -> Card:
    """Show the age of messages, in rounds, when they were used."""
    used = messages.filter(pl.col("age").is_not_null())
    if not used.height:
        return Card("Age of messages", missing="No message was used.")
    traces = []
    hover = "age %{x}: %{y} % (messages: %{customdata:,})<extra></extra>"
    for part, name, colour in _by_sender(used):
        counts = part["age"].value_counts().sort("age")
        share = compact(100 * counts["count"] / part.height)
        ages, numbers = counts["age"].to_list(), counts["count"].to_list()
        traces.append(bars(ages, share, name, colour, customdata=numbers, hovertemplate=hover))
    x = axis("age when used (rounds)", dtick=1 if np.ptp(used["age"].to_numpy()) <= 20 else None)
    view = chart(traces, x, axis("share of used messages (%)"), 360, barmode="group")
    text = (
        "The recipient's round minus the round stamped on the message; negative if the sender was ahead. "
        "Byzantine clients may forge the stamp."
    )
    return Card("Age of messages", text, {"age": view})


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
    for part, name, colour in _by_sender(delays):
        counts, _ = np.histogram(np.minimum(part["delay_s"].to_numpy(), edges[-1]), edges)
        traces.append(bars(middles, counts.tolist(), name, colour, opacity=0.85, width=widths, **hover))
    median, p90, p99 = np.percentile(all_values, (50, 90, 99))
    x, y = axis("delay from sending to delivery (s)"), axis("messages")
    text = f"Median {median:.3g} s, 90th percentile {p90:.3g} s, 99th percentile {p99:.3g} s."
    if edges[-1] < all_values.max():
        text += f" The last bar includes all longer delays, up to {all_values.max():.3g} s."
    return Card("Delay", text, {"delay": chart(traces, x, y, 360, barmode="stack", bargap=0)})


def _bin_edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return equal bins up to the 99th percentile, so that a long tail does not hide the rest."""
    high = float(np.percentile(values, 99)) or float(values.max()) or 1.0
    if values.max() < 1.5 * high:
        return np.linspace(0, max(float(values.max()), 1e-9), NUM_BINS + 1)
    return np.linspace(0, high, NUM_BINS + 1)


MAX_MESSAGES = 3_000
MAX_CLIENTS = 30
NUM_INITIALLY_VISIBLE = 160
"""Messages in the initial range of the time axis."""
LOST_LENGTH = 0.6
"""Length of the arrow of a lost message, relative to the arrow of a delivered message."""
GROUPS = (
    ("used", (pl.col("outcome") == "used") & ~pl.col("is_byzantine"), HONEST),
    ("used, from a Byzantine client", (pl.col("outcome") == "used") & pl.col("is_byzantine"), BYZANTINE),
    ("not used (stale, rejected, ...)", ~pl.col("outcome").is_in(["used", "lost", "in flight"]), "@dropped"),
    ("lost", pl.col("outcome") == "lost", "@lost"),
)


def spacetime_card(run: Run, messages: pl.DataFrame, rounds: pl.DataFrame) -> Card:
    """Show the messages among a limited number of clients, in one or more time windows."""
    clients = _shown_clients(run)
    is_inside = pl.col("sender").is_in(clients) & pl.col("recipient").is_in(clients)
    inside = messages.filter(is_inside).sort("sent_s")
    windows = _windows(inside)
    rows = {client: row for row, client in enumerate(clients)}
    views = {name: _figure(part, rounds, rows, run) for name, part in windows.items()}
    notes = []
    if len(clients) < run.num_clients:
        notes.append(f"{len(clients)} of {run.num_clients:,} clients and the messages among them are shown.")
    if len(windows) > 1:
        shown = sum(part.height for part in windows.values())
        notes.append(f"{shown:,} of {inside.height:,} messages are shown, in {len(windows)} time windows.")
    if run.message_fraction < 1:
        notes.append(f"{run.message_fraction:.0%} of all messages are recorded (output.message_events).")
    return Card(
        "Space and time",
        "Each horizontal line is a client, grey while it trains. Arrows are messages; crosses are lost "
        "messages. Scroll to zoom, drag to move, point at an arrowhead for details, double-click to show "
        "everything.",
        views,
        note=" ".join(notes),
        wide=True,
    )


def _shown_clients(run: Run) -> list[int]:
    """Return all clients or, if there are too many, those closest to the first Byzantine client."""
    if run.num_clients <= MAX_CLIENTS:
        return list(range(run.num_clients))
    start = min(run.byzantine, default=0)
    reached = (client for _, client in nx.bfs_edges(run.graph, start))
    return sorted([start, *islice(reached, MAX_CLIENTS - 1)])


def _windows(messages: pl.DataFrame) -> dict[str, pl.DataFrame]:
    if messages.height <= MAX_MESSAGES:
        return {"all": messages}
    size = MAX_MESSAGES // 3
    middle = (messages.height - size) // 2
    return {"start": messages.head(size), "middle": messages.slice(middle, size), "end": messages.tail(size)}


def _figure(messages: pl.DataFrame, rounds: pl.DataFrame, rows: Mapping[int, int], run: Run) -> Plot:
    start, end = _time_span(messages)
    arrows = [
        _arrows(messages.filter(condition), name, colour, rows)
        for name, condition, colour in GROUPS
        if messages.filter(condition).height
    ]
    traces = [_training(rounds, rows, start, end), *arrows]
    labels = {
        "tickvals": list(rows.values()),
        "ticktext": [f"<b>{c}</b>" if c in run.byzantine else str(c) for c in rows],
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": True,
    }
    x = axis("simulated time (s)", range=_initial_range(messages, start))
    y, height = axis("client (bold: Byzantine)", **labels), min(900, 190 + 30 * max(6, len(rows)))
    return chart(traces, x, y, height, dragmode="pan", meta={"scroll": True})


def _initial_range(messages: pl.DataFrame, start: float) -> list[float | None]:
    last = min(NUM_INITIALLY_VISIBLE, messages.height - 1)
    end = messages["sent_s"][last] if messages.height else start + 1.0
    margin = 0.03 * (end - start) + 1e-3
    return round_times((start - margin, end + margin))


def _time_span(messages: pl.DataFrame) -> tuple[float, float]:
    if not messages.height:
        return 0.0, 0.0
    latest = messages.select(pl.max_horizontal("sent_s", "delivered_s", "lost_s").max()).item()
    return float(messages["sent_s"].min()), float(latest)  # type: ignore[arg-type]


def _training(rounds: pl.DataFrame, rows: Mapping[int, int], start: float, end: float) -> Trace:
    """Return thick segments for the training times of clients."""
    visible = rounds.filter(
        pl.col("client").is_in([*rows]),
        pl.col("trained_s").is_not_null(),
        pl.col("trained_s") >= start,
        pl.col("started_s") <= end,
    )
    y = _rows(visible["client"], rows)
    x = round_times(segments(visible["started_s"].to_numpy(), visible["trained_s"].to_numpy()))
    return line(x, compact(segments(y, y)), "training", "@training", width=9, hoverinfo="skip")


def _arrows(messages: pl.DataFrame, name: str, colour: str, rows: Mapping[int, int]) -> Trace:
    is_lost = name == "lost"
    sent_s = messages["sent_s"]
    end_s = messages["lost_s" if is_lost else "delivered_s"].fill_null(sent_s)
    start, end = (_rows(messages[column], rows) for column in ("sender", "recipient"))
    if is_lost:
        end = start + LOST_LENGTH * (end - start)
    # Each message is three points: start, end, gap. Only the end has a marker and hover text.
    hover_texts = [["", _hover_text(message), ""] for message in messages.iter_rows(named=True)]
    if is_lost:
        edge = {"color": colour, "width": [0, 2, 0] * messages.height}
        marker = {"symbol": "x-thin", "size": [0, 7, 0] * messages.height, "line": edge}
    else:
        marker = {"symbol": "arrow", "angleref": "previous", "size": [0, 9, 0] * messages.height}
        marker |= {"color": colour, "line": {"width": 0}}
    return line(
        round_times(segments(sent_s.to_numpy(), end_s.to_numpy())),
        compact(segments(start, end)),
        name,
        colour,
        width=1.3,
        dash="dot" if is_lost else "solid",
        mode="lines+markers",
        marker={"opacity": 1, **marker},
        hovertext=[*chain.from_iterable(hover_texts)],
        hoverinfo=["skip", "text", "skip"] * messages.height,
    )


def _rows(clients: pl.Series, rows: Mapping[int, int]) -> NDArray[np.float64]:
    return np.array([rows[client] for client in clients], dtype=np.float64)


def _hover_text(message: Record) -> str:
    role = " (Byzantine)" if message["is_byzantine"] else ""
    lines = [
        f"<b>{message['sender']}{role} → {message['recipient']}</b>, round {message['round']}",
        f"sent at {message['sent_s']:.3f} s",
    ]
    if message["delay_s"] is not None:
        lines.append(f"delivered {message['delay_s']:.3f} s later")
    outcome = escape_markup(message["outcome"])
    if message["reason"] is not None:
        outcome += f": {escape_markup(message['reason'])}"
    if message["outcome"] == "used":
        outcome += f", age {message['age']}"
    if message["weight"] is not None:
        outcome += f", weight {message['weight']:.2f}"
    return "<br>".join([*lines, outcome])
