"""Accuracy and loss over time: mean and range, for honest and for Byzantine clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from rdpfl_sim.reports.accuracy_curves import Curve, Curves, latest_values
from rdpfl_sim.reports.html.page import Card, missing
from rdpfl_sim.reports.html.plot import (
    BYZANTINE,
    HONEST,
    Figure,
    Trace,
    axis,
    compact,
    line,
    mean_and_range,
    round_axis,
)

MAX_FULL_RANGE = 12
"""For larger groups, the area shows the 10th to 90th percentile instead of the full range."""
GROUPS = ((False, "honest", HONEST), (True, "Byzantine (own models)", BYZANTINE))


def accuracy_card(metrics: pl.DataFrame) -> Card:
    """Show accuracy by round and by simulated time, on both test sets, and the loss."""
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
        "The latest evaluation of each client on its own test data. The global test set has all classes.",
        views,
        wide=True,
    )


def curves(metrics: pl.DataFrame, column: str = "personal_accuracy") -> Curves:
    """Return the finite values of each client, with their times and rounds."""
    finite = metrics.filter(pl.col(column).is_finite()).select("client", "time_s", "round", column)
    return {
        int(key[0]): Curve(*(part[name].to_numpy().astype(float) for name in ("time_s", "round", column)))
        for key, part in finite.group_by("client", maintain_order=True)
    }


def _traces(metrics: pl.DataFrame, column: str, by: str) -> list[Trace]:
    traces: list[Trace] = []
    shape = "hv" if by == "time_s" else "linear"
    for is_byzantine, name, colour in reversed(GROUPS):
        members = curves(metrics.filter(pl.col("is_byzantine") == is_byzantine), column)
        if not members:
            continue
        x, values = latest_values(members, by)
        dash = "dash" if is_byzantine else "solid"
        hover = {"hovertemplate": f"%{{y}}<extra>{name}, mean of {len(members)}</extra>"}
        if len(members) == 1:
            traces.append(
                line(compact(x), compact(values[0]), f"{name}, one client", colour, dash=dash, shape=shape)
            )
        else:
            full_range = len(members) <= MAX_FULL_RANGE
            style = {"dash": dash, "shape": shape, **hover}
            traces += mean_and_range(compact(x), values, name, colour, full_range, **style)
    return traces


def _layout(metrics: pl.DataFrame, column: str, by: str) -> dict[str, Any]:
    y = axis(column.replace("_", " "), rangemode="tozero")
    if column == "personal_loss":
        y = axis("loss (cross-entropy)", type="log", dtick=1, exponentformat="power")
    return {
        "xaxis": round_axis(metrics["round"]) if by == "round" else axis("simulated time (s)"),
        "yaxis": y,
        "hovermode": "x unified",
    }


def honest_mean(metrics: pl.DataFrame) -> tuple[list[float], list[float]]:
    """Return rounds and the mean accuracy of honest clients in each of them."""
    members = curves(metrics.filter(~pl.col("is_byzantine")))
    if not members:
        return [], []
    x, values = latest_values(members, "round")
    with np.errstate(all="ignore"):
        return x.tolist(), np.nanmean(values, axis=0).tolist()
