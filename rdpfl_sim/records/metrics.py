"""The rows of metrics.csv: one row per client and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypedDict, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

from rdpfl_sim.components.options import SLACK
from rdpfl_sim.files import JsonObject
from rdpfl_sim.records.field import Field, Ratio, marks_of
from rdpfl_sim.records.record_types import (
    NeighbourShare,
    TrainedScores,
    UpdatedScores,
    ValidationScores,
)

Moments: TypeAlias = Literal["both", "trained", "updated"]

MOMENTS = {"trained": "after local training", "updated": "after the exchange"}
"""The moments of a round at which models are evaluated, in words. A client uses the trained model."""


def selected_moments(choice: str) -> tuple[str, ...]:
    """Return the moments that `evaluation.moments` selects, the headline first.

    >>> selected_moments("both"), selected_moments("updated")
    (('trained', 'updated'), ('updated',))
    """
    return tuple(MOMENTS) if choice == "both" else (choice,)


def headline_moment(scenario: Mapping[str, Any]) -> str:
    """Return the moment of accuracies in tables and figures: `trained`, unless only `updated` is selected."""
    return "updated" if scenario.get("evaluation", {}).get("moments") == "updated" else "trained"


class RoundMeans(TypedDict):
    """Means over rounds of a client since its previous evaluation, or over rounds of honest clients.

    To add one, declare it here and add its sums to `RoundStats` in simulation/telemetry.py.
    """

    used_per_round: Annotated[
        float | None,
        Field("messages", "used messages per round", "messages used per round", heading="used per round"),
        Ratio("num_used", "num_rounds"),
    ]
    mean_age: Annotated[
        float | None,
        Field(
            "rounds",
            "mean age of the used messages; negative if senders are ahead",
            "mean age of used messages (rounds)",
            heading="age",
        ),
        Ratio("sum_age", "num_used"),
    ]
    clipped: Annotated[
        float | None,
        Field(
            "fraction", "rounds in which the deviation was clipped to tau", "share of rounds with clipping"
        ),
        Ratio("num_clipped", "num_estimates"),
    ]
    bounded: Annotated[
        float | None,
        Field("fraction", "rounds in which the result was clipped to G_d", "share of rounds bounded by G_d"),
        Ratio("num_bounded", "num_estimates"),
    ]
    byzantine_weight: Annotated[
        float | None,
        Field(
            "fraction",
            "total weight of Byzantine messages in the aggregate",
            "weight of Byzantine messages",
            heading="Byzantine weight",
        ),
        Ratio("byzantine_weight", "num_weighed"),
    ]
    neighbour_share: NeighbourShare


ROUND_RATIOS = marks_of(RoundMeans, Ratio)


class EvaluatedClient(TypedDict):
    """An evaluated client."""

    client: Annotated[int, Field("id", "client, counted from 0")]
    byzantine: Annotated[int, Field("0 or 1", "1 if the client is Byzantine")]
    round: Annotated[
        int, Field("rounds", "last finished round of the client; 0 before training", heading="round")
    ]
    hops: Annotated[
        int | None,
        Field(
            "links",
            "distance to the nearest Byzantine client in the first graph; empty if there is none",
            heading="hops",
        ),
    ]


class MetricsRow(EvaluatedClient, TrainedScores, UpdatedScores, ValidationScores, RoundMeans):
    """One evaluation of one client; None if a value was not measured.

    `trained_*` is measured after local training, `updated_*` after the exchange. The values from
    `used_per_round` on are means since the client's previous evaluation.
    """


METRICS = tuple(MetricsRow.__annotations__)
"""The columns of metrics.csv, in order."""

HEADER = ",".join(METRICS)
INTEGERS = frozenset(name for name, kind in get_type_hints(MetricsRow).items() if kind in (int, int | None))


def parse_metrics(lines: Iterable[str]) -> Iterator[MetricsRow]:
    """Yield the rows in lines of metrics.csv, which may include the header.

    Raise `ValueError` if any other line is not a row.
    """
    for line in lines:
        text = line.rstrip("\r\n")
        if text == HEADER:
            continue
        row = {
            column: None if cell == "" else int(cell) if column in INTEGERS else float(cell)
            for column, cell in zip(METRICS, text.split(","), strict=True)
        }
        yield cast("MetricsRow", row)


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
TESTS = ("personal", "global", "validation")
"""The sets of examples on which a client's model is evaluated."""


def tests_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the sets of examples in a summary: `validation` only if the run has such examples."""
    columns = [f"{moment}_validation_accuracy" for moment in MOMENTS]
    is_validated = any(row.get(column) is not None for row in rows for column in columns)
    return [test for test in TESTS if test != "validation" or is_validated]


TARGETS = [percent / 100 for percent in range(10, 100, 5)]
"""Target accuracies. The summary contains the time at which each is first reached."""

HONEST_ACCURACIES = [
    f"accuracy.honest.{test}.{statistic.key}"
    for test in TESTS
    for statistic in STATISTICS
    if statistic.is_accuracy
]
"""The paths in a summary of the accuracies of honest clients."""


def accuracy(rows: Iterable[Mapping[str, Any]], moment: str) -> JsonObject:
    """Return the section `accuracy` of a summary, from the latest metrics row of each client."""
    rows = list(rows)
    groups = {"honest": [row for row in rows if not row["byzantine"]], "all": rows}
    return {
        group: {
            test: _statistics_of([value for row in members if (value := row[column]) is not None])
            for test in tests_of(rows)
            if (column := f"{moment}_{test}_accuracy")
        }
        for group, members in groups.items()
    }


def with_accuracy(by_hops: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], moment: str) -> JsonObject:
    """Add the accuracy of honest clients to statistics by distance to the nearest Byzantine client."""
    accuracies: dict[str, list[float]] = {}
    for row in rows:
        if not row["byzantine"] and row["hops"] is not None:
            accuracies.setdefault(str(row["hops"]), []).append(row[f"{moment}_personal_accuracy"])
    return {
        hops: {
            "num_clients": len(values),
            "personal_accuracy": float(np.mean(values)),
            **by_hops.get(hops, {}),
        }
        for hops, values in sorted(accuracies.items(), key=lambda item: int(item[0]))
    }


def times_to_accuracy(
    rows: Iterable[Mapping[str, Any]], moments: Sequence[str], num_honest: int
) -> dict[str, dict[str, float]]:
    """Return when the mean accuracy of honest clients first reached each target, per moment.

    The mean is over the latest evaluations up to a time; clients without one count as 0.
    """
    points: dict[str, list[tuple[float, int, float]]] = {moment: [] for moment in moments}
    for row in rows:
        for moment in moments if not row["byzantine"] else ():
            point = row[f"{moment}_time_s"], row["client"], row[f"{moment}_personal_accuracy"]
            points[moment].append(point)
    return {moment: _times_to_targets(points[moment], num_honest) for moment in moments}


def _times_to_targets(points: list[tuple[float, int, float]], num_honest: int) -> dict[str, float]:
    """Return the first time at which the mean reaches each target; points are (time, client, accuracy)."""
    points.sort(key=lambda point: point[0])
    latest: dict[int, float] = {}
    reached: dict[str, float] = {}
    total = 0.0
    for time_s, group in groupby(points, key=lambda point: point[0]):
        for _, client, value in group:
            total += value - latest.get(client, 0.0)
            latest[client] = value
        for target in TARGETS[len(reached) :]:
            if total / num_honest < target - SLACK:
                break
            reached[str(target)] = time_s
    return reached


def _statistics_of(values: Sequence[float]) -> dict[str, float] | None:
    array = np.asarray(values, dtype=float)
    return {statistic.key: statistic.compute(array) for statistic in STATISTICS} if values else None
