"""Overview: accuracy and loss over time, outcomes of messages, and the reach of an attack."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from rdpfl_sim.records.field import fields_of
from rdpfl_sim.records.metrics import MOMENTS
from rdpfl_sim.records.record_types import Scores
from rdpfl_sim.reports.figures import frame_curves, latest_values
from rdpfl_sim.reports.html.page import (
    BYZANTINE,
    HONEST,
    Card,
    Trace,
    axis,
    band,
    chart,
    compact,
    line,
    round_axis,
)
from rdpfl_sim.reports.html.tab import NOT_EVALUATED, RunRecords, run_tab
from rdpfl_sim.reports.html.tabs.contamination import contamination_cards
from rdpfl_sim.reports.html.tabs.messages import delay_card, no_messages, outcomes_card

MAX_FULL_RANGE = 12
"""For larger groups, the area shows the 10th to 90th percentile instead of the full range."""
GROUPS = ((True, "Byzantine (own models)", BYZANTINE, "dash"), (False, "honest", HONEST, "solid"))
VIEWS = (
    ("by round", "personal_accuracy", "round"),
    ("by time", "personal_accuracy", "time_s"),
    ("global test", "global_accuracy", "round"),
    ("validation", "validation_accuracy", "round"),
    ("loss", "personal_loss", "round"),
)


@run_tab("Overview", position=10)
def overview_tab(records: RunRecords) -> Sequence[Card]:
    """Show accuracy and outcomes, and the reach of the attack or, without an attack, the delays."""
    run, messages = records.run, records.messages
    exchanged = run.evaluations("updated") if run.moment == "trained" else None
    accuracy = accuracy_card(records.metrics, records.last_round, exchanged)
    if not messages.height:
        return [accuracy, no_messages("Outcomes of messages", records.run)]
    reach, *others = contamination_cards(records.metrics, records.last_round)
    return [accuracy, outcomes_card(messages), reach if others else delay_card(messages)]


def accuracy_card(metrics: pl.DataFrame, last_round: int, exchanged: pl.DataFrame | None = None) -> Card:
    """Show accuracy by round and by simulated time, on every set of examples, and the loss.

    `exchanged` has the evaluations after the exchange, if the others are those after local training.
    """
    shown = [(metrics, *view) for view in VIEWS]
    if exchanged is not None:
        shown.append((exchanged, MOMENTS["updated"], "personal_accuracy", "round"))
    views = {
        view: chart(traces, x, _score_axis(column), 420, hovermode="x unified")
        for frame, view, column, by in shown
        if (traces := _traces(frame, column, by))
        and (x := round_axis(last_round) if by == "round" else axis("simulated time (s)"))
    }
    if not views:
        return Card("Accuracy", missing=NOT_EVALUATED)
    text = "The latest evaluation of each client on its own test data. The global test set has all classes."
    return Card("Accuracy", text, views, wide=True)


def _score_axis(column: str) -> dict[str, object]:
    if column == "personal_loss":
        return axis("loss (cross-entropy)", type="log", dtick=1, exponentformat="power")
    return axis(fields_of(Scores)[column].heading, rangemode="tozero")


def _traces(metrics: pl.DataFrame, column: str, by: str) -> list[Trace]:
    """Return the mean of each group with its full range or, for large groups, the middle 80 %."""
    traces: list[Trace] = []
    shape = "hv" if by == "time_s" else "linear"
    for is_byzantine, name, colour, dash in GROUPS:
        members = frame_curves(metrics.filter(pl.col("is_byzantine") == is_byzantine), column)
        if not members:
            continue
        x, values = latest_values(members, by)
        draw = partial(line, compact(x), colour=colour, dash=dash, shape=shape)
        if len(members) == 1:
            traces.append(draw(compact(values[0]), f"{name}, one client"))
            continue
        is_small = len(members) <= MAX_FULL_RANGE
        low, high = np.nanpercentile(values, (0, 100) if is_small else (10, 90), axis=0)
        label = f"{name}, {'worst to best' if is_small else '10th to 90th percentile'}"
        hover = f"%{{y}}<extra>{name}, mean of {len(members)}</extra>"
        traces += band(compact(x), compact(low), compact(high), label, colour, shape=shape)
        traces.append(draw(compact(np.nanmean(values, axis=0)), f"{name}, mean", hovertemplate=hover))
    return traces
