"""The space-time diagram: clients as horizontal lines, messages as arrows from sending to arrival."""

from __future__ import annotations

from typing import Any

import polars as pl

from rdpfl_sim.frames import Run
from rdpfl_sim.reports.html.page import Card
from rdpfl_sim.reports.html.plot import BYZANTINE, HONEST, Figure, Trace, axis, safe, times

MAX_MESSAGES = 3_000
MAX_CLIENTS = 30
AT_FIRST = 160
"""So many messages are in sight before anybody zooms."""
LOST_AT = 0.6
"""A lost message is drawn to this part of its way."""
GROUPS = (
    ("used", (pl.col("fate") == "used") & ~pl.col("is_byzantine"), HONEST),
    ("used, from a Byzantine client", (pl.col("fate") == "used") & pl.col("is_byzantine"), BYZANTINE),
    ("not used (stale, rejected ...)", ~pl.col("fate").is_in(["used", "lost", "in flight"]), "@dropped"),
    ("lost", pl.col("fate") == "lost", "@lost"),
)


def spacetime_card(run: Run, messages: pl.DataFrame, rounds: pl.DataFrame) -> Card:
    """The messages of some time among some clients, as many as the eye can take."""
    clients = _neighbourhood(run)
    inside = messages.filter(pl.col("sender").is_in(clients), pl.col("recipient").is_in(clients)).sort(
        "sent_s"
    )
    windows = _windows(inside)
    places = {client: place for place, client in enumerate(clients)}
    views = {name: _figure(part, rounds, places, run) for name, part in windows.items()}
    notes = []
    if len(clients) < run.num_clients:
        notes.append(
            f"{len(clients)} of {run.num_clients:,} clients, near each other, and messages among them."
        )
    if len(windows) > 1:
        shown = sum(part.height for part in windows.values())
        notes.append(f"{shown:,} of {inside.height:,} messages, in {len(windows)} windows of time.")
    if run.message_fraction < 1:
        notes.append(f"The records hold {run.message_fraction:.0%} of all messages (output.message_events).")
    return Card(
        "Space and time",
        "Each horizontal line is a client, grey where it trains. Arrows are messages, crosses lost ones. "
        "Scroll to zoom, drag to move, hover at an arrow's head for its story, double-click for all.",
        views,
        note=" ".join(notes),
        wide=True,
    )


def _neighbourhood(run: Run) -> list[int]:
    """All clients, or some that are near each other, beginning at the first Byzantine one."""
    if run.num_clients <= MAX_CLIENTS:
        return list(range(run.num_clients))
    around: dict[int, list[int]] = {}
    for i, j in run.topology["edges"]:
        around.setdefault(i, []).append(j)
        around.setdefault(j, []).append(i)
    found = dict.fromkeys([min(run.byzantine, default=0)])
    for client in iter_growing(found):
        found.update(dict.fromkeys(around.get(client, [])))
        if len(found) >= MAX_CLIENTS:
            break
    return sorted([*found][:MAX_CLIENTS])


def iter_growing(found: dict[int, None]) -> Any:
    """The keys of a dictionary that grows meanwhile."""
    place = 0
    while place < len(found):
        yield [*found][place]
        place += 1


def _windows(messages: pl.DataFrame) -> dict[str, pl.DataFrame]:
    if messages.height <= MAX_MESSAGES:
        return {"all": messages}
    size = MAX_MESSAGES // 3
    middle = (messages.height - size) // 2
    return {
        "beginning": messages.head(size),
        "middle": messages.slice(middle, size),
        "end": messages.tail(size),
    }


def _figure(messages: pl.DataFrame, rounds: pl.DataFrame, places: dict[int, int], run: Run) -> Figure:
    start, end = _span(messages)
    arrows = [
        _arrows(messages.filter(condition), name, colour, places)
        for name, condition, colour in GROUPS
        if messages.filter(condition).height
    ]
    traces = [_training(rounds, places, start, end), *arrows]
    labels = {
        "tickvals": list(places.values()),
        "ticktext": [f"<b>{c}</b>" if c in run.byzantine else str(c) for c in places],
        "range": [len(places) - 0.5, -0.5],
        "showgrid": True,
    }
    layout = {
        "xaxis": axis("simulated time (s)", range=_in_sight(messages, start)),
        "yaxis": axis("client (bold: Byzantine)", **labels),
        "dragmode": "pan",
        "meta": {"scroll": True},
    }
    return Figure(traces, layout, height=min(900, 190 + 30 * max(6, len(places))))


def _in_sight(messages: pl.DataFrame, start: float) -> list[float | None]:
    end = messages["sent_s"][min(AT_FIRST, messages.height - 1)] if messages.height else start + 1.0
    margin = 0.03 * (end - start) + 1e-3
    return times((start - margin, end + margin))


def _span(messages: pl.DataFrame) -> tuple[float, float]:
    if not messages.height:
        return 0.0, 0.0
    latest = messages.select(pl.max_horizontal("sent_s", "delivered_s", "lost_s").max()).item()
    return float(messages["sent_s"].min()), float(latest)  # type: ignore[arg-type]


def _training(rounds: pl.DataFrame, places: dict[int, int], start: float, end: float) -> Trace:
    """Thick pieces where clients train."""
    some = rounds.filter(
        pl.col("client").is_in([*places]),
        pl.col("trained_s").is_not_null(),
        pl.col("trained_s") >= start,
        pl.col("started_s") <= end,
    )
    x: list[Any] = []
    y: list[Any] = []
    for client, started_s, trained_s in some.select("client", "started_s", "trained_s").iter_rows():
        x += [*times((started_s, trained_s)), None]
        y += [places[client], places[client], None]
    style = {"color": "@training", "width": 9}
    name = {"name": "training", "hoverinfo": "skip"}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": style, **name}


def _arrows(messages: pl.DataFrame, name: str, colour: str, places: dict[int, int]) -> Trace:
    x: list[Any] = []
    y: list[Any] = []
    told: list[Any] = []
    is_lost = name == "lost"
    for row in messages.iter_rows(named=True):
        start, end = places[row["sender"]], places[row["recipient"]]
        arrival_s = row["lost_s"] if is_lost else row["delivered_s"]
        arrival_s = row["sent_s"] if arrival_s is None else arrival_s
        x += [*times((row["sent_s"], arrival_s)), None]
        y += [start, round(start + LOST_AT * (end - start), 2) if is_lost else end, None]
        told += ["", _story(row), ""]
    num = messages.height
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "y": y,
        "name": name,
        "line": {"color": colour, "width": 1.3, "dash": "dot" if is_lost else "solid"},
        "marker": _crosses(num, colour) if is_lost else _heads(num, colour),
        "hovertext": told,
        "hoverinfo": ["skip", "text", "skip"] * num,
    }


def _heads(num: int, colour: str) -> dict[str, Any]:
    """A head at the second of every three points: start, arrival, gap."""
    head = {"symbol": "arrow", "angleref": "previous", "size": [0, 9, 0] * num}
    return {**head, "color": colour, "opacity": 1, "line": {"width": 0}}


def _crosses(num: int, colour: str) -> dict[str, Any]:
    return {
        "opacity": 1,
        "symbol": "x-thin",
        "size": [0, 7, 0] * num,
        "line": {"color": colour, "width": [0, 2, 0] * num},
    }


def _story(row: dict[str, Any]) -> str:
    role = " (Byzantine)" if row["is_byzantine"] else ""
    lines = [
        f"<b>{row['sender']}{role} → {row['recipient']}</b>, round {row['round']}",
        f"sent at {row['sent_s']:.3f} s",
    ]
    if row["delay_s"] is not None:
        lines.append(f"arrived {row['delay_s']:.3f} s later")
    fate = safe(row["fate"]) + ("" if row["reason"] is None else f": {safe(row['reason'])}")
    if row["fate"] == "used":
        fate += f", age {row['age']}" + ("" if row["weight"] is None else f", weight {row['weight']:.2f}")
    return "<br>".join([*lines, fate])
