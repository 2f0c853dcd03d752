"""Accuracy of each client over rounds and simulated time, as arrays."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rdpfl_sim.records.metrics_file import MetricsRow

MAX_POINTS = 600  # about the width of a panel in pixels

Array: TypeAlias = NDArray[np.float64]


class Curve(NamedTuple):
    """The evaluations of one client in chronological order."""

    time_s: Array
    round: Array
    accuracy: Array


Curves: TypeAlias = dict[int, Curve]


def accuracy_curves(rows: Iterable[MetricsRow]) -> tuple[Curves, Curves]:
    """Return the finite personal accuracies of honest and of Byzantine clients from rows of metrics.csv."""
    points: tuple[dict[int, list[tuple[float, float, float]]], ...] = (defaultdict(list), defaultdict(list))
    for row in rows:
        accuracy = row["personal_accuracy"]
        if accuracy is not None and math.isfinite(accuracy):
            points[row["byzantine"]][row["client"]].append((row["time_s"], row["round"], accuracy))
    honest, byzantine = (
        {client: Curve(*np.array(own, dtype=float).T) for client, own in group.items()} for group in points
    )
    return honest, byzantine


def latest_values(curves: Curves, by: str) -> tuple[Array, Array]:
    """Return where any client was evaluated (x), and the latest accuracy of each client there (clients, x).

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
