"""The timeline of faults: clients down or slow, partitions, links down, changes of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from rdpfl_sim.reports.fault_text import affected_text
from rdpfl_sim.reports.html.page import Card, Table, missing
from rdpfl_sim.reports.html.plot import Figure, Trace, axis, round_times
from rdpfl_sim.reports.text import quantity

MAX_CLIENTS = 60
MAX_ROWS = 200
STARTS = {"crash": "down", "absent": "not yet joined", "leave": "departed", "slow": "slow"}
ENDS = {"recover": "down", "join": "not yet joined", "unslow": "slow"}
PARTITION = "partition"
COLOURS = {
    "down": "@byzantine",
    "not yet joined": "@faint",
    "departed": "@muted",
    "slow": "@yellow",
    PARTITION: "@lost",
}


@dataclass(frozen=True)
class Interval:
    """An interval in which a client, or the network, was in a state; `row` is its row in the timeline."""

    row: str
    state: str
    start_s: float
    end_s: float
    details: str = ""


def fault_cards(faults: pl.DataFrame, end_s: float) -> list[Card]:
    """Show a timeline of clients and partitions, the number of links down, and a list of all changes."""
    if not faults.height:
        return [missing("Faults", "No fault occurred.")]
    intervals = [*_client_intervals(faults, end_s), *_partitions(faults, end_s)]
    return [*_timeline_cards(intervals, faults, end_s), *_link_cards(faults, end_s), _changes_card(faults)]


def _client_intervals(faults: pl.DataFrame, end_s: float) -> Iterator[Interval]:
    """Yield intervals of each state; overlapping faults of one client form one interval."""
    open_: dict[tuple[int, str], list[float]] = {}
    for row in faults.filter(pl.col("clients").is_not_null()).iter_rows(named=True):
        change, time_s = row["change"], row["time_s"]
        for client in row["clients"]:
            if change in STARTS:
                open_.setdefault((client, STARTS[change]), []).append(time_s)
            elif change in ENDS and open_.get((client, ENDS[change])):
                key = (client, ENDS[change])
                start_s = open_[key].pop()
                if not open_[key]:
                    yield Interval(str(client), key[1], start_s, time_s)
    for (client, state), starts in open_.items():
        if starts:
            yield Interval(str(client), state, min(starts), end_s, "until the end of the run")


def _partitions(faults: pl.DataFrame, end_s: float) -> Iterator[Interval]:
    open_: dict[str, list[float]] = {}
    for row in faults.filter(pl.col("change").is_in(["cut", "heal"])).iter_rows(named=True):
        sizes = " and ".join(f"{len(side)}" for side in row["sides"])
        key = str(row["sides"])
        if row["change"] == "cut":
            open_.setdefault(key, []).append(row["time_s"])
        elif open_.get(key):
            start_s = open_[key].pop()
            yield Interval(PARTITION, PARTITION, start_s, row["time_s"], f"sides of {sizes} clients")
    for starts in open_.values():
        for start_s in starts:
            yield Interval(PARTITION, PARTITION, start_s, end_s, "until the end of the run")


def _timeline_cards(intervals: list[Interval], faults: pl.DataFrame, end_s: float) -> list[Card]:
    rewired = faults.filter(pl.col("change") == "rewire")["time_s"].to_list()
    if not intervals and not rewired:
        return []
    clients = sorted({int(interval.row) for interval in intervals if interval.row != PARTITION})
    shown = clients[:MAX_CLIENTS]
    has_partition = any(interval.row == PARTITION for interval in intervals)
    rows = [*([PARTITION] if has_partition else []), *map(str, shown)]
    traces = [_bars([i for i in intervals if i.state == state and i.row in rows], state) for state in COLOURS]
    marks = [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": x,
            "x1": x,
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "line": {"color": "@green", "width": 1.2, "dash": "dot"},
        }
        for x in round_times(rewired[:MAX_ROWS])
    ]
    layout: dict[str, Any] = {
        "xaxis": axis("simulated time (s)", showgrid=True, range=[0, end_s]),
        "yaxis": axis(
            "client", type="category", categoryorder="array", categoryarray=rows[::-1], showgrid=False
        ),
        "barmode": "overlay",
        "shapes": marks,
        "bargap": 0.35,
    }
    text = "Times at which clients were down, slow, not yet joined or departed, and times of partitions."
    if rewired:
        text += f" Dotted lines: {quantity(len(rewired), 'change')} of the graph."
    note = f"{len(shown)} of {len(clients):,} clients are shown." if len(shown) < len(clients) else ""
    height = min(1000, 170 + 24 * max(3, len(rows)))
    figure = Figure([trace for trace in traces if trace["x"]], layout, height)
    return [Card("Timeline", text, {"timeline": figure}, note=note, wide=True)]


def _bars(intervals: list[Interval], state: str) -> Trace:
    width = 0.3 if state == "slow" else 0.65  # a slow client may be down at the same time
    lengths = [interval.end_s - interval.start_s for interval in intervals]
    hover_texts = [
        f"{i.start_s:.2f} to {i.end_s:.2f} s{', ' if i.details else ''}{i.details}" for i in intervals
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": state,
        "width": width,
        "marker": {"color": COLOURS[state]},
        "opacity": 0.9,
        "y": [interval.row for interval in intervals],
        "base": round_times(interval.start_s for interval in intervals),
        "x": round_times(lengths),
        "customdata": hover_texts,
        "hovertemplate": f"%{{y}}: {state}, %{{customdata}}<extra></extra>",
    }


def _link_cards(faults: pl.DataFrame, end_s: float) -> list[Card]:
    signed = faults.filter(pl.col("change").is_in(["links_down", "links_up"])).select(
        "time_s",
        pl.col("links").list.len().cast(pl.Int64)
        * pl.when(pl.col("change") == "links_down").then(1).otherwise(-1).alias("step"),
    )
    if not signed.height:
        return []
    down = signed.columns[1]
    counts = signed.with_columns(pl.col(down).cum_sum())
    x, y = (
        [*round_times(counts["time_s"]), round_times([end_s])[0]],
        [*counts[down].to_list(), counts[down][-1]],
    )
    step = -(-len(x) // 2_000)
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": x[::step],
        "y": y[::step],
        "name": "links down",
        "line": {"color": "@lost", "width": 2, "shape": "hv"},
        "fill": "tozeroy",
        "fillcolor": "@purple-band",
        "hovertemplate": "%{x} s: %{y} down<extra></extra>",
    }
    layout = {"xaxis": axis("simulated time (s)"), "yaxis": axis("directed links down", rangemode="tozero")}
    text = "Number of links that are down; each direction counts."
    return [Card("Links down", text, {"links": Figure([trace], layout, 280)}, wide=True)]


def _changes_card(faults: pl.DataFrame) -> Card:
    rows = [
        (f"{row['time_s']:.3f} s", row["change"].replace("_", " "), affected_text(row))
        for row in faults.head(MAX_ROWS).iter_rows(named=True)
    ]
    note = (
        f"The first {MAX_ROWS} of {faults.height:,} changes are listed." if faults.height > MAX_ROWS else ""
    )
    return Card("All changes", content=Table(("time", "change", "affected"), rows), note=note, wide=True)
