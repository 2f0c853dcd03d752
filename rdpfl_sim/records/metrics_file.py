"""The rows of metrics.csv: one row per client and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypedDict, cast


class MetricsRow(TypedDict):
    """One evaluation of one client; None if a value was not measured.

    The values from `used_per_round` on are means since the client's previous evaluation.
    """

    time_s: float
    client: int
    byzantine: int
    round: int
    hops: int | None
    personal_accuracy: float | None
    personal_loss: float | None
    global_accuracy: float | None
    global_loss: float | None
    used_per_round: float | None
    mean_age: float | None
    clipped: float | None
    bounded: float | None
    byzantine_weight: float | None
    neighbour_share: float | None


METRICS = tuple(MetricsRow.__annotations__)
"""The columns of metrics.csv, in order."""

HEADER = ",".join(METRICS)
INTEGERS = frozenset(("client", "byzantine", "round", "hops"))


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
