"""How far an attack reaches: accuracy and Byzantine weight by distance to the nearest attacker."""

from __future__ import annotations

import numpy as np
import polars as pl

from rdpfl_sim.reports.html.page import Card, missing
from rdpfl_sim.reports.html.plot import HONEST, INK, Figure, axis, compact, line, round_axis

MAX_POINTS = 2_000
MAX_LINES = 8
COLOURS = ("@byzantine", "@yellow", "@green", "@sky", "@honest", "@purple", "@lost", "@muted")


def contamination_cards(metrics: pl.DataFrame) -> list[Card]:
    """By hops: the last accuracy of honest clients, and how much weight they gave to Byzantine messages."""
    near = metrics.filter(~pl.col("is_byzantine"), pl.col("hops").is_not_null())
    if not near.height:
        if not metrics.height:
            return [missing("Contamination", "No client has been evaluated yet, or metrics.csv is missing.")]
        why = "There is no Byzantine client within reach of an honest one, so nothing can spread."
        return [missing("Contamination", why)]
    return [_accuracy(near), _weight(near)]


def _accuracy(near: pl.DataFrame) -> Card:
    last = near.group_by("client", maintain_order=True).last().filter(pl.col("personal_accuracy").is_finite())
    means = last.group_by("hops").agg(pl.col("personal_accuracy").mean(), pl.len()).sort("hops")
    some = last.gather_every(-(-last.height // MAX_POINTS) or 1).sort("client")
    sideways = 0.24 * (np.arange(some.height) * 0.618 % 1 - 0.5)  # so that equal ones do not hide each other
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "honest client",
        "x": compact(some["hops"].to_numpy() + sideways),
        "y": compact(some["personal_accuracy"]),
        "marker": {"color": HONEST, "size": 8, "opacity": 0.65},
        "customdata": some["client"].to_list(),
        "hovertemplate": "client %{customdata}: %{y}<extra></extra>",
    }
    bars = {
        "type": "scatter",
        "mode": "markers",
        "name": "mean",
        "x": means["hops"].to_list(),
        "y": compact(means["personal_accuracy"]),
        "customdata": means["len"].to_list(),
        "marker": {"symbol": "line-ew", "size": 42, "line": {"color": INK, "width": 3}},
        "hovertemplate": "mean of %{customdata} clients: %{y}<extra></extra>",
    }
    furthest = int(means["hops"].to_numpy().max(initial=1))
    layout = {
        "xaxis": axis("hops to the nearest Byzantine client", dtick=1, range=[0.4, furthest + 0.6]),
        "yaxis": axis("last personal accuracy"),
    }
    text = "Each dot is an honest client; the line is the mean of those at this distance."
    return Card("Accuracy by distance", text, {"accuracy": Figure([dots, bars], layout, 400)})


def _weight(near: pl.DataFrame) -> Card:
    weighed = near.filter(pl.col("byzantine_weight").is_finite())
    if not weighed.height:
        return missing(
            "Weight of Byzantine messages", "No message was weighed: none was used, or nobody inspected."
        )
    hops = sorted(set(weighed["hops"]))[:MAX_LINES]
    traces = []
    for colour, distance in zip(COLOURS, hops, strict=False):
        part = (
            weighed.filter(pl.col("hops") == distance)
            .group_by("round")
            .agg(pl.col("byzantine_weight").mean() * 100)
            .sort("round")
        )
        name = f"{distance} hop{'s' if distance != 1 else ''}"
        hover = {"hovertemplate": f"%{{y}} %<extra>{name}</extra>"}
        traces.append(
            line(part["round"].to_list(), compact(part["byzantine_weight"], 3), name, colour, **hover)
        )
    layout = {
        "xaxis": round_axis(near["round"]),
        "yaxis": axis("weight of Byzantine messages (%)", rangemode="tozero"),
        "hovermode": "x unified",
    }
    text = (
        "How much of what honest clients make of their messages comes straight from attackers, by distance."
    )
    note = (
        ""
        if hops[-1] <= 1
        else "Only neighbours of attackers hear them; others hear what neighbours made of it."
    )
    return Card("Weight of Byzantine messages", text, {"weight": Figure(traces, layout, 400)}, note=note)
