"""Contamination: accuracy and Byzantine weight by distance to the nearest Byzantine client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from rdpfl_sim.records.field import fields_of
from rdpfl_sim.records.metrics import RoundMeans
from rdpfl_sim.reports.html.page import HONEST, INK, Card, axis, chart, compact, dots, line, round_axis
from rdpfl_sim.reports.html.tab import NOT_EVALUATED, RunRecords, run_tab
from rdpfl_sim.reports.text import quantity
from rdpfl_sim.results.run import last_evaluations

MAX_POINTS = 2_000
MAX_LINES = 8
COLOURS = ("@byzantine", "@yellow", "@green", "@sky", "@honest", "@purple", "@lost", "@muted")


@run_tab("Contamination", position=60)
def contamination_tab(records: RunRecords) -> Sequence[Card]:
    """Show accuracy and Byzantine weight by hops."""
    return contamination_cards(records.metrics, records.last_round)


def contamination_cards(metrics: pl.DataFrame, last_round: int) -> list[Card]:
    """Show the last accuracy of honest clients and the weight of Byzantine messages, by hops."""
    reachable = metrics.filter(~pl.col("is_byzantine"), pl.col("hops").is_not_null())
    if not reachable.height:
        if not metrics.height:
            return [Card("Contamination", missing=NOT_EVALUATED)]
        reason = "No honest client is connected to a Byzantine client, so no attack can spread."
        return [Card("Contamination", missing=reason)]
    return [_accuracy_card(reachable), _weight_card(reachable, last_round)]


def _accuracy_card(reachable: pl.DataFrame) -> Card:
    last = last_evaluations(reachable).filter(pl.col("personal_accuracy").is_finite())
    means = last.group_by("hops").agg(pl.col("personal_accuracy").mean(), pl.len()).sort("hops")
    shown = last.gather_every(-(-last.height // MAX_POINTS) or 1)
    jitter = 0.24 * (np.arange(shown.height) * 0.618 % 1 - 0.5)  # equal values stay visible side by side
    clients = dots(
        compact(shown["hops"].to_numpy() + jitter),
        compact(shown["personal_accuracy"]),
        "honest client",
        {"color": HONEST, "size": 8, "opacity": 0.65},
        customdata=shown["client"].to_list(),
        hovertemplate="client %{customdata}: %{y}<extra></extra>",
    )
    mean_marks = dots(
        means["hops"].to_list(),
        compact(means["personal_accuracy"]),
        "mean",
        {"symbol": "line-ew", "size": 42, "line": {"color": INK, "width": 3}},
        customdata=[quantity(num, "client") for num in means["len"]],
        hovertemplate="mean of %{customdata}: %{y}<extra></extra>",
    )
    furthest = int(means["hops"].to_numpy().max(initial=1))
    x = axis("hops to the nearest Byzantine client", dtick=1, range=[0.4, furthest + 0.6])
    view = chart([clients, mean_marks], x, axis("last personal accuracy"))
    text = "Each dot is an honest client; the line is the mean of the clients at this distance."
    return Card("Accuracy by distance", text, {"accuracy": view})


def _weight_card(reachable: pl.DataFrame, last_round: int) -> Card:
    weighted = reachable.filter(pl.col("byzantine_weight").is_finite())
    if not weighted.height:
        return Card("Weight of Byzantine messages", missing="No message weights were recorded.")
    hops = sorted(set(weighted["hops"]))[:MAX_LINES]
    traces = []
    for colour, distance in zip(COLOURS, hops, strict=False):
        part = weighted.filter(pl.col("hops") == distance).group_by("round")
        mean = part.agg(pl.col("byzantine_weight").mean() * 100).sort("round")
        name = quantity(distance, "hop")
        hover = f"%{{y}} %<extra>{name}</extra>"
        x, y = mean["round"].to_list(), compact(mean["byzantine_weight"], 3)
        traces.append(line(x, y, name, colour, hovertemplate=hover))
    weight = axis(f"{fields_of(RoundMeans)['byzantine_weight'].words} (%)", rangemode="tozero")
    view = chart(traces, round_axis(last_round), weight, hovermode="x unified")
    text = "Share of Byzantine messages in the aggregates of honest clients, by distance."
    note = "Only neighbours of a Byzantine client receive its messages directly." if hops[-1] > 1 else ""
    return Card("Weight of Byzantine messages", text, {"weight": view}, note=note)
