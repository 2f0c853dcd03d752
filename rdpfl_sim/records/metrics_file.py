"""The rows of metrics.csv: one row per client and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, TypedDict, cast

from rdpfl_sim.records.field import Field


class MetricsRow(TypedDict):
    """One evaluation of one client; None if a value was not measured.

    The values from `used_per_round` on are means since the client's previous evaluation.
    """

    time_s: Annotated[float, Field("s", "simulated time of the evaluation")]
    client: Annotated[int, Field("id", "client, counted from 0")]
    byzantine: Annotated[int, Field("0 or 1", "1 if the client is Byzantine")]
    round: Annotated[int, Field("rounds", "last finished round of the client; 0 before training")]
    hops: Annotated[
        int | None,
        Field("links", "distance to the nearest Byzantine client in the first graph; empty if there is none"),
    ]
    personal_accuracy: Annotated[
        float | None, Field("fraction", "accuracy on test data with the label mix of the client")
    ]
    personal_loss: Annotated[float | None, Field("nats", "mean cross-entropy on these data")]
    global_accuracy: Annotated[float | None, Field("fraction", "accuracy on test data of all classes")]
    global_loss: Annotated[float | None, Field("nats", "mean cross-entropy on these data")]
    used_per_round: Annotated[float | None, Field("messages", "used messages per round")]
    mean_age: Annotated[
        float | None, Field("rounds", "mean age of the used messages; negative if senders are ahead")
    ]
    clipped: Annotated[float | None, Field("fraction", "rounds in which the deviation was clipped to tau")]
    bounded: Annotated[float | None, Field("fraction", "rounds in which the result was clipped to G_d")]
    byzantine_weight: Annotated[
        float | None, Field("fraction", "total weight of Byzantine messages in the aggregate")
    ]
    neighbour_share: Annotated[
        float | None,
        Field("ratio", "distance that neighbours moved the model, divided by that of local training"),
    ]


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
