"""Accuracy statistics over clients.

A statistic is one entry of `STATISTICS`. The summary contains every entry. The terminal, comparisons, sweeps
and the breakdown search use its keys, headings and phrases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdpfl_sim.records.json_file import JsonObject


class Statistic(NamedTuple):
    """One number that summarises the accuracy of several clients."""

    key: str
    """Its name in summary.json."""
    heading: str
    """The heading of its column in a table."""
    phrase: str
    """The words before "accuracy of honest clients" in a sentence."""
    compute: Callable[[NDArray[np.float64]], float]
    is_accuracy: bool = True
    """Whether the statistic is an accuracy, so that larger values are better."""

    @property
    def path(self) -> str:
        """The path in summary.json of its value for the personal accuracy of honest clients."""
        return f"accuracy.honest.personal.{self.key}"

    @property
    def direction(self) -> str:
        """Which values are better, in words."""
        return "larger is better" if self.is_accuracy else "smaller means more equal clients"


STATISTICS = (
    Statistic("mean", "mean", "mean", lambda values: float(values.mean())),
    Statistic("worst", "worst", "worst", lambda values: float(values.min())),
    Statistic("p10", "10th pct.", "10th percentile of", lambda values: float(np.percentile(values, 10))),
    Statistic(
        "spread", "spread", "standard deviation of", lambda values: float(values.std()), is_accuracy=False
    ),
)
TESTS = ("personal", "global")
"""The test sets on which a client's model is evaluated."""

HONEST_ACCURACIES = [
    f"accuracy.honest.{test}.{statistic.key}"
    for test in TESTS
    for statistic in STATISTICS
    if statistic.is_accuracy
]
"""The paths in a summary of the accuracies of honest clients."""


def accuracy(rows: Iterable[Mapping[str, Any]]) -> JsonObject:
    """Return the section `accuracy` of a summary, from the latest metrics row of each client."""
    rows = list(rows)
    groups = {"honest": [row for row in rows if not row["byzantine"]], "all": rows}
    return {
        group: {
            test: _statistics_of(
                [row[f"{test}_accuracy"] for row in members if row[f"{test}_accuracy"] is not None]
            )
            for test in TESTS
        }
        for group, members in groups.items()
    }


def with_accuracy(by_hops: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> JsonObject:
    """Add the accuracy of honest clients to statistics by distance to the nearest Byzantine client."""
    accuracies: dict[str, list[float]] = {}
    for row in rows:
        if not row["byzantine"] and row["hops"] is not None:
            accuracies.setdefault(str(row["hops"]), []).append(row["personal_accuracy"])
    return {
        hops: {
            "num_clients": len(values),
            "personal_accuracy": float(np.mean(values)),
            **by_hops.get(hops, {}),
        }
        for hops, values in sorted(accuracies.items(), key=lambda item: int(item[0]))
    }


def _statistics_of(values: Sequence[float]) -> dict[str, float] | None:
    array = np.asarray(values, dtype=float)
    return {statistic.key: statistic.compute(array) for statistic in STATISTICS} if values else None
