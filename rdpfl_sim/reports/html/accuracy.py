"""How accuracy and loss went: mean and spread over honest and over Byzantine clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from rdpfl_sim.reports.figures import Curve, Curves, latest
from rdpfl_sim.reports.html.page import Card, missing
from rdpfl_sim.reports.html.plot import (
    BYZANTINE,
    HONEST,
    Figure,
    Trace,
    axis,
    compact,
    line,
    round_axis,
    spread,
)

FEW = 12
"""Up to so many clients of a group, the area is from the worst to the best of them."""
GROUPS = ((False, "honest", HONEST), (True, "Byzantine (own models)", BYZANTINE))


def accuracy_card(metrics: pl.DataFrame) -> Card:
    """Curves by round and by simulated time, on both test sets, and of the loss."""
    views = {}
    for view, column, by in (
        ("by round", "personal_accuracy", "round"),
        ("by time", "personal_accuracy", "time_s"),
        ("global test", "global_accuracy", "round"),
        ("loss", "personal_loss", "round"),
    ):
        traces = _traces(metrics, column, by)
        if traces:
            views[view] = Figure(traces, _layout(metrics, column, by), height=420)
    if not views:
        return missing("Accuracy", "No client has been evaluated yet, or metrics.csv is missing.")
    return Card(
        "Accuracy",
        "Every client's latest evaluation on its own test data; the global test has all classes.",
        views,
        wide=True,
    )


def curves(metrics: pl.DataFrame, column: str = "personal_accuracy") -> Curves:
    """The finite values of every client, by time and by round."""
    finite = metrics.filter(pl.col(column).is_finite()).select("client", "time_s", "round", column)
    return {
        int(key[0]): Curve(*(part[name].to_numpy().astype(float) for name in ("time_s", "round", column)))
        for key, part in finite.group_by("client", maintain_order=True)
    }


def _traces(metrics: pl.DataFrame, column: str, by: str) -> list[Trace]:
    found: list[Trace] = []
    shape = "hv" if by == "time_s" else "linear"
    for is_byzantine, name, colour in reversed(GROUPS):
        members = curves(metrics.filter(pl.col("is_byzantine") == is_byzantine), column)
        if not members:
            continue
        x, values = latest(members, by)
        dash = "dash" if is_byzantine else "solid"
        hover = {"hovertemplate": f"%{{y}}<extra>{name}, mean of {len(members)}</extra>"}
        if len(members) == 1:
            found.append(
                line(compact(x), compact(values[0]), f"{name}, client", colour, dash=dash, shape=shape)
            )
        else:
            few = len(members) <= FEW
            found += spread(compact(x), values, name, colour, few, dash=dash, shape=shape, **hover)
    return found


def _layout(metrics: pl.DataFrame, column: str, by: str) -> dict[str, Any]:
    title = {"personal_accuracy": "personal accuracy", "global_accuracy": "accuracy on the global test"}.get(
        column, "loss (cross-entropy)"
    )
    y = axis(title, rangemode="tozero")
    if column == "personal_loss":
        y = axis(title, type="log", dtick=1, exponentformat="power")
    return {
        "xaxis": round_axis(metrics["round"]) if by == "round" else axis("simulated time (s)"),
        "yaxis": y,
        "hovermode": "x unified",
    }


def honest_mean(metrics: pl.DataFrame) -> tuple[list[float], list[float]]:
    """The honest clients' mean accuracy by round: rounds, and values."""
    members = curves(metrics.filter(~pl.col("is_byzantine")))
    if not members:
        return [], []
    x, values = latest(members, "round")
    with np.errstate(all="ignore"):
        return x.tolist(), np.nanmean(values, axis=0).tolist()
