"""Faults: a timeline of clients, partitions, links and changes of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import polars as pl

from rdpfl_sim.reports.html.page import Card, HtmlTable, Trace, axis, bars, chart, line, round_times
from rdpfl_sim.reports.html.tab import RunRecords, no_events, run_tab
from rdpfl_sim.reports.text import affected_text, change_text, quantity
from rdpfl_sim.world.faults.fault import Condition
from rdpfl_sim.world.faults.timeline import FaultInterval, condition_of, fault_intervals

MAX_CLIENTS = 60
MAX_ROWS = 200
MAX_POINTS = 2_000
PARTITION_ROW = "partition"
COLOURS = {
    Condition.CRASHED: "@byzantine",
    Condition.ABSENT: "@faint",
    Condition.DEPARTED: "@muted",
    Condition.SLOW: "@yellow",
    Condition.PARTITIONED: "@lost",
}


@run_tab("Faults", position=70)
def faults_tab(records: RunRecords) -> Sequence[Card]:
    """Show when faults affected clients, links and the graph."""
    if not records.run.has_events:
        return [no_events("Faults", records.run)]
    return fault_cards(records.run.faults, records.end_s)


def fault_cards(faults: pl.DataFrame, end_s: float) -> list[Card]:
    """Show a timeline of clients and partitions, the number of links down, and a list of all changes."""
    if not faults.height:
        return [Card("Faults", missing="No fault occurred.")]
    intervals = [*fault_intervals(faults.iter_rows(named=True))]
    of_links: dict[Condition, list[FaultInterval]] = {}
    for interval in intervals:
        if interval.condition.subjects == "links":
            of_links.setdefault(interval.condition, []).append(interval)
    others = [interval for interval in intervals if interval.condition.subjects != "links"]
    rewired_s = [row["time_s"] for row in faults.iter_rows(named=True) if condition_of(row) is None]
    cards = []
    if others or rewired_s:
        cards.append(_timeline_card(others, rewired_s, end_s))
    cards += [_links_card(condition, affected, end_s) for condition, affected in of_links.items()]
    return [*cards, _changes_card(faults)]


def _timeline_card(intervals: Sequence[FaultInterval], rewired_s: Sequence[float], end_s: float) -> Card:
    clients = sorted({subject for _, subject, _, _ in intervals if isinstance(subject, int)})
    shown = clients[:MAX_CLIENTS]
    has_partition = any(interval.condition.subjects == "sides" for interval in intervals)
    rows = [*([PARTITION_ROW] if has_partition else []), *map(str, shown)]
    visible = [interval for interval in intervals if _row(interval) in rows]
    traces = []
    for condition in dict.fromkeys(interval.condition for interval in visible):
        matching = [interval for interval in visible if interval.condition is condition]
        traces.append(_bars(matching, condition, end_s))
    mark = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    style = {"color": "@green", "width": 1.2, "dash": "dot"}
    order = {"categoryorder": "array", "categoryarray": rows[::-1]}
    view = chart(
        traces,
        axis("simulated time (s)", showgrid=True, range=[0, end_s]),
        axis("client", type="category", showgrid=False, **order),
        min(1000, 170 + 24 * max(3, len(rows))),
        barmode="overlay",
        shapes=[{**mark, "x0": x, "x1": x, "line": style} for x in round_times(rewired_s[:MAX_ROWS])],
        bargap=0.35,
    )
    text = "Times when clients were down, slow, not yet joined or departed, and times of partitions."
    if rewired_s:
        text += f" Dotted lines: {quantity(len(rewired_s), 'change')} of the graph."
    note = f"{len(shown)} of {len(clients):,} clients are shown." if len(shown) < len(clients) else ""
    return Card("Timeline", text, {"timeline": view}, note=note, wide=True)


def _row(interval: FaultInterval) -> str:
    return PARTITION_ROW if interval.condition.subjects == "sides" else str(interval.subject)


def _bars(intervals: Sequence[FaultInterval], condition: Condition, end_s: float) -> Trace:
    ends_s = [end_s if interval.end_s is None else interval.end_s for interval in intervals]
    lengths_s = [end - interval.start_s for end, interval in zip(ends_s, intervals, strict=True)]
    return bars(
        round_times(lengths_s),
        [_row(interval) for interval in intervals],
        condition.label,
        COLOURS.get(condition, "@ink"),
        orientation="h",
        width=0.3 if condition.subjects == "clients" and not condition.stops else 0.65,  # it may be down, too
        opacity=0.9,
        base=round_times(interval.start_s for interval in intervals),
        customdata=[_hover_text(interval, end) for end, interval in zip(ends_s, intervals, strict=True)],
        hovertemplate=f"%{{y}}: {condition}, %{{customdata}}<extra></extra>",
    )


def _hover_text(interval: FaultInterval, end_s: float) -> str:
    text = f"{interval.start_s:.2f} to {end_s:.2f} s"
    if interval.end_s is None:
        text += ", until the end of the run"
    if interval.condition.subjects == "sides":
        assert isinstance(interval.subject, tuple)
        sides = [quantity(len(side), "client") for side in interval.subject if isinstance(side, frozenset)]
        text += f", sides of {' and '.join(sides)}"
    return text


def _links_card(condition: Condition, intervals: Sequence[FaultInterval], end_s: float) -> Card:
    steps = [(interval.start_s, 1) for interval in intervals]
    steps += [(interval.end_s, -1) for interval in intervals if interval.end_s is not None]
    times_s, changes = zip(*sorted(steps), strict=True)
    num_down = [0, *accumulate(changes), sum(changes)]
    step = -(-len(num_down) // MAX_POINTS)
    trace = line(
        round_times([0.0, *times_s, end_s])[::step],
        num_down[::step],
        f"links {condition}",
        "@lost",
        width=2,
        shape="hv",
        fill="tozeroy",
        fillcolor="@purple-band",
        hovertemplate=f"%{{x}} s: %{{y}} {condition}<extra></extra>",
    )
    y = axis(f"directed links {condition}", rangemode="tozero")
    view = chart([trace], axis("simulated time (s)"), y, 280)
    text = f"Number of links that are {condition}; each direction is counted separately."
    return Card(f"Links {condition}", text, {"links": view}, wide=True)


def _changes_card(faults: pl.DataFrame) -> Card:
    rows = [
        (f"{row['time_s']:.3f} s", change_text(row), affected_text(row))
        for row in faults.head(MAX_ROWS).iter_rows(named=True)
    ]
    note = (
        f"The first {MAX_ROWS} of {faults.height:,} changes are listed." if faults.height > MAX_ROWS else ""
    )
    return Card("All changes", content=HtmlTable(("time", "change", "affected"), rows), note=note, wide=True)
