"""Accuracy of each client over rounds and simulated time, as arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # the import takes a third of a second, and runs do not need it
    import polars as pl

MAX_POINTS = 600  # about the width of a panel in pixels

Array: TypeAlias = NDArray[np.float64]


class Curve(NamedTuple):
    """The evaluations of one client in chronological order."""

    time_s: Array
    round: Array
    accuracy: Array


Curves: TypeAlias = dict[int, Curve]


def client_curves(evaluations: Iterable[tuple[int, float, int, float | None]]) -> Curves:
    """Return the finite values of each client; an evaluation is (client, time, round, value)."""
    points: dict[int, list[tuple[float, int, float]]] = defaultdict(list)
    for client, time_s, round_, value in evaluations:
        if value is not None and isfinite(value):
            points[client].append((time_s, round_, value))
    return {client: Curve(*np.array(own, dtype=float).T) for client, own in points.items()}


def frame_curves(metrics: pl.DataFrame, column: str = "personal_accuracy") -> Curves:
    """Return the curves of the clients in a frame of `Run.metrics`."""
    return client_curves(metrics.select("client", "time_s", "round", column).iter_rows())


def honest_mean(metrics: pl.DataFrame) -> tuple[list[float], list[float]]:
    """Return the rounds and the mean accuracy of honest clients in each round."""
    curves = frame_curves(metrics.filter(~metrics["is_byzantine"]))
    if not curves:
        return [], []
    x, values = latest_values(curves, "round")
    return x.tolist(), np.nanmean(values, axis=0).tolist()


def latest_values(curves: Curves, by: str) -> tuple[Array, Array]:
    """Return all evaluation positions, and each client's latest accuracy at them (clients, positions).

    The accuracy is NaN before a client's first evaluation. A client that stopped keeps its last value, so
    that the mean does not jump when a client leaves.
    """
    own = [getattr(curve, by) for curve in curves.values()]
    x = np.unique(np.concatenate(own))
    if len(x) > MAX_POINTS:
        x = np.linspace(x[0], x[-1], MAX_POINTS)
    values = np.full((len(curves), len(x)), np.nan)
    for row, evaluated, curve in zip(values, own, curves.values(), strict=True):
        index = np.searchsorted(evaluated, x, side="right") - 1
        row[index >= 0] = curve.accuracy[index[index >= 0]]
    return x, values
