"""The timeline of faults: who was down or slow, what was cut off, when the graph changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from rdpfl_sim.reports.html.page import Card, missing, table
from rdpfl_sim.reports.html.plot import Figure, Trace, axis, times

MAX_CLIENTS = 60
MAX_ROWS = 200
BEGINS = {"crash": "down", "absent": "not there yet", "leave": "gone", "slow": "slow"}
ENDS = {"recover": "down", "join": "not there yet", "unslow": "slow"}
COLOURS = {
    "down": "@byzantine",
    "not there yet": "@faint",
    "gone": "@muted",
    "slow": "@yellow",
    "cut off": "@lost",
}


@dataclass(frozen=True)
class Span:
    """Something that lasts."""

    row: str
    what: str
    start_s: float
    end_s: float
    told: str = ""


def fault_cards(faults: pl.DataFrame, end_s: float) -> list[Card]:
    """What happened to clients and to links, and all of it as a list."""
    if not faults.height:
        return [missing("Faults", "Nothing broke: the scenario has no faults, or none has happened.")]
    spans = [*_client_spans(faults, end_s), *_partitions(faults, end_s)]
    return [*_timeline(spans, faults, end_s), *_links(faults, end_s), _list(faults)]


def _client_spans(faults: pl.DataFrame, end_s: float) -> Iterator[Span]:
    """From each beginning to its end, if it ends; several at once last until the last one ends."""
    open_: dict[tuple[int, str], list[float]] = {}
    for row in faults.filter(pl.col("clients").is_not_null()).iter_rows(named=True):
        change, time_s = row["change"], row["time_s"]
        for client in row["clients"]:
            if change in BEGINS:
                open_.setdefault((client, BEGINS[change]), []).append(time_s)
            elif change in ENDS and open_.get((client, ENDS[change])):
                key = (client, ENDS[change])
                start_s = open_[key].pop()
                if not open_[key]:
                    yield Span(str(client), key[1], start_s, time_s)
    for (client, what), starts in open_.items():
        if starts:
            yield Span(str(client), what, min(starts), end_s, "until the end")


def _partitions(faults: pl.DataFrame, end_s: float) -> Iterator[Span]:
    open_: dict[str, list[float]] = {}
    for row in faults.filter(pl.col("change").is_in(["cut", "heal"])).iter_rows(named=True):
        sides = " | ".join(f"{len(side)}" for side in row["sides"])
        key = str(row["sides"])
        if row["change"] == "cut":
            open_.setdefault(key, []).append(row["time_s"])
        elif open_.get(key):
            yield Span("partition", "cut off", open_[key].pop(), row["time_s"], f"sides of {sides} clients")
    for starts in open_.values():
        for start_s in starts:
            yield Span("partition", "cut off", start_s, end_s, "until the end")


def _timeline(spans: list[Span], faults: pl.DataFrame, end_s: float) -> list[Card]:
    rewired = faults.filter(pl.col("change") == "rewire")["time_s"].to_list()
    if not spans and not rewired:
        return []
    clients = sorted({int(span.row) for span in spans if span.row != "partition"})
    shown = clients[:MAX_CLIENTS]
    rows = [*(["partition"] if any(span.row == "partition" for span in spans) else []), *map(str, shown)]
    traces = [_bars([s for s in spans if s.what == what and s.row in rows], what) for what in COLOURS]
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
        for x in times(rewired[:MAX_ROWS])
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
    text = "When clients were down, absent, gone or slow, and when a partition cut messages."
    if rewired:
        text += f" Dotted lines: the graph changed ({len(rewired)} times)."
    note = f"{len(shown)} of {len(clients):,} clients are shown." if len(shown) < len(clients) else ""
    height = min(1000, 170 + 24 * max(3, len(rows)))
    figure = Figure([trace for trace in traces if trace["x"]], layout, height)
    return [Card("Timeline", text, {"timeline": figure}, note=note, wide=True)]


def _bars(spans: list[Span], what: str) -> Trace:
    width = 0.3 if what == "slow" else 0.65  # who is slow may be down as well
    lengths = [span.end_s - span.start_s for span in spans]
    words = [
        f"{span.start_s:.2f} to {span.end_s:.2f} s{', ' if span.told else ''}{span.told}" for span in spans
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": what,
        "width": width,
        "marker": {"color": COLOURS[what]},
        "opacity": 0.9,
        "y": [span.row for span in spans],
        "base": times(s.start_s for s in spans),
        "x": times(lengths),
        "customdata": words,
        "hovertemplate": f"%{{y}}: {what}, %{{customdata}}<extra></extra>",
    }


def _links(faults: pl.DataFrame, end_s: float) -> list[Card]:
    """How many links were down at a time."""
    signed = faults.filter(pl.col("change").is_in(["links_down", "links_up"])).select(
        "time_s",
        pl.col("links").list.len().cast(pl.Int64)
        * pl.when(pl.col("change") == "links_down").then(1).otherwise(-1).alias("step"),
    )
    if not signed.height:
        return []
    down = signed.columns[1]
    counts = signed.with_columns(pl.col(down).cum_sum())
    x, y = [*times(counts["time_s"]), times([end_s])[0]], [*counts[down].to_list(), counts[down][-1]]
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
    text = "Outages of links; each direction counts."
    return [Card("Links down", text, {"links": Figure([trace], layout, 280)}, wide=True)]


def _list(faults: pl.DataFrame) -> Card:
    rows = [
        (f"{row['time_s']:.3f} s", row["change"].replace("_", " "), _whom(row))
        for row in faults.head(MAX_ROWS).iter_rows(named=True)
    ]
    note = f"The first {MAX_ROWS} of {faults.height:,} changes." if faults.height > MAX_ROWS else ""
    return Card("All changes", html=table(("time", "change", "what"), rows), note=note, wide=True)


def _whom(row: dict[str, Any]) -> str:
    if row["clients"] is not None:
        extra = "" if row["factor"] is None else f", {row['factor']:g} times as long"
        good = ", for good" if row["for_good"] else ""
        return f"clients {_listed(row['clients'])}{extra}{good}"
    if row["sides"] is not None:
        return " | ".join(_listed(side) for side in row["sides"])
    links = row["links"] or []
    joint = "-" if row["change"] == "rewire" else "→"
    return f"{len(links)} links: {_listed([f'{i}{joint}{j}' for i, j in links])}"


def _listed(items: list[Any]) -> str:
    more = f" and {len(items) - 12} more" if len(items) > 12 else ""
    return ", ".join(map(str, items[:12])) + more
