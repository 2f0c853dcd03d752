"""The space-time diagram: clients are horizontal lines, messages are arrows from sending to delivery."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice

import networkx as nx
import numpy as np
import polars as pl
from numpy.typing import NDArray

from rdpfl_sim.frames import Run
from rdpfl_sim.records.reader import Record
from rdpfl_sim.reports.html.page import Card
from rdpfl_sim.reports.html.plot import (
    BYZANTINE,
    HONEST,
    Plot,
    Trace,
    axis,
    compact,
    escape_markup,
    line,
    round_times,
    segments,
)

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
    inside = messages.filter(pl.col("sender").is_in(clients), pl.col("recipient").is_in(clients)).sort(
        "sent_s"
    )
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
    return {
        "start": messages.head(size),
        "middle": messages.slice(middle, size),
        "end": messages.tail(size),
    }


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
    layout = {
        "xaxis": axis("simulated time (s)", range=_initial_range(messages, start)),
        "yaxis": axis("client (bold: Byzantine)", **labels),
        "dragmode": "pan",
        "meta": {"scroll": True},
    }
    return Plot(traces, layout, height=min(900, 190 + 30 * max(6, len(rows))))


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
    head: dict[str, object] = {"symbol": "arrow", "angleref": "previous", "size": [0, 9, 0] * messages.height}
    cross: dict[str, object] = {"symbol": "x-thin", "size": [0, 7, 0] * messages.height}
    head |= {"color": colour, "line": {"width": 0}}
    cross |= {"line": {"color": colour, "width": [0, 2, 0] * messages.height}}
    return line(
        round_times(segments(sent_s.to_numpy(), end_s.to_numpy())),
        compact(segments(start, end)),
        name,
        colour,
        width=1.3,
        dash="dot" if is_lost else "solid",
        mode="lines+markers",
        marker={"opacity": 1, **(cross if is_lost else head)},
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
