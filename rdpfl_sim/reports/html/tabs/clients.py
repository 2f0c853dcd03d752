"""Clients: a small accuracy curve and a table row for each client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import polars as pl

from rdpfl_sim.records.field import fields_of
from rdpfl_sim.records.metrics import EvaluatedClient, MetricsRow, RoundMeans
from rdpfl_sim.records.record_types import Scores
from rdpfl_sim.reports.figures import frame_curves, honest_mean
from rdpfl_sim.reports.html.page import Card, HtmlTable
from rdpfl_sim.reports.html.tab import NOT_EVALUATED, RunRecords, run_tab
from rdpfl_sim.reports.text import number, score
from rdpfl_sim.results import Run

MAX_CURVES = 60
MAX_ROWS = 300
MAX_POINTS = 80
Row: TypeAlias = Mapping[str, Any]
Cell: TypeAlias = Callable[[Row], str]


@dataclass(frozen=True)
class ClientCurve:
    """The accuracy of one client; `path` is an SVG path in a box of 100 by 50."""

    id: int
    role: str
    last: str
    path: str


@dataclass(frozen=True)
class ClientCurves:
    """One small figure per client, each with the mean of all honest clients."""

    clients: Sequence[ClientCurve]
    mean_path: str
    template: ClassVar[str] = "client_curves.html"


@run_tab("Clients", position=20)
def clients_tab(records: RunRecords) -> Sequence[Card]:
    """Show a curve and a table row per client, up to a limit."""
    if not records.last.height:
        return [Card("Clients", missing=NOT_EVALUATED)]
    last = records.last
    return [_curves_card(records.metrics, last, records.last_round), _table_card(records.run, last)]


def sample_clients(last: pl.DataFrame, limit: int) -> list[int]:
    """Return clients of each role, at equal steps in the accuracy ranking."""
    if last.height <= limit:
        return [int(client) for client in last["client"]]
    ranked = last.sort("personal_accuracy", "client", nulls_last=False)
    num_byzantine = round(limit * last["is_byzantine"].sum() / last.height)
    sample: list[int] = []
    for is_byzantine, num in ((False, limit - num_byzantine), (True, num_byzantine)):
        members = ranked.filter(pl.col("is_byzantine") == is_byzantine)["client"].to_numpy()
        indices = np.linspace(0, len(members) - 1, min(num, len(members))).round().astype(int)
        sample += [int(client) for client in members[indices]]
    return sorted(sample)


def _curves_card(metrics: pl.DataFrame, last: pl.DataFrame, last_round: int) -> Card:
    by_client = frame_curves(metrics)
    shown = sample_clients(last, MAX_CURVES)
    top = max((float(curve.accuracy.max()) for curve in by_client.values()), default=1) or 1
    is_byzantine = dict(last.select("client", "is_byzantine").rows())
    small_curves = []
    for client in shown:
        curve = by_client.get(client)
        x, y = ([], []) if curve is None else (curve.round.tolist(), curve.accuracy.tolist())
        role, last_score = "Byzantine" if is_byzantine[client] else "honest", score(y[-1] if y else None)
        small_curves.append(ClientCurve(client, role, last_score, _svg_path(x, y, last_round or 1, top)))
    note = ""
    if len(shown) < last.height:
        note = f"{len(shown)} of {last.height:,} clients are shown, at equal steps in the accuracy ranking."
    return Card(
        "Clients",
        f"Personal accuracy by round, from 0 to {top:.2f}. Dashed: honest mean. Orange: Byzantine.",
        content=ClientCurves(small_curves, _svg_path(*honest_mean(metrics), last_round or 1, top)),
        note=note,
        wide=True,
    )


def _svg_path(x: Sequence[float], y: Sequence[float], x_max: float, y_max: float) -> str:
    step = max(1, len(x) // MAX_POINTS)
    indices = [*range(0, len(x) - 1, step), len(x) - 1] if x else []
    points = [f"{100 * x[i] / x_max:.1f} {50 - 48 * y[i] / y_max:.1f}" for i in indices]
    return f"M{'L'.join(points)}" if points else ""


def _table_card(run: Run, last: pl.DataFrame) -> Card:
    columns = _columns(run, has_validation=last["validation_accuracy"].count() > 0)
    worst_first = last.sort("is_byzantine", "personal_accuracy", "client", nulls_last=False)
    rows = [
        [cell(row) for cell in columns.values()] for row in worst_first.head(MAX_ROWS).iter_rows(named=True)
    ]
    first_mean, *_ = _declared(RoundMeans)
    hops, share = (fields_of(MetricsRow)[name] for name in ("hops", "neighbour_share"))
    note = f"The first {MAX_ROWS} of {last.height:,} clients are listed." if last.height > MAX_ROWS else ""
    return Card(
        "Last evaluations",
        f"Honest clients first, sorted by accuracy. Columns from {first_mean!r} on are means since the "
        f"previous evaluation. {hops.heading.capitalize()}: {hops.meaning}. "
        f"{share.heading.capitalize()}: {share.meaning}.",
        content=HtmlTable([*columns], rows, "figures"),
        note=note,
        wide=True,
    )


def _columns(run: Run, has_validation: bool) -> Mapping[str, Cell]:
    """Return the function that makes the cells of each column, by its heading."""
    client, scores = _declared(EvaluatedClient), _declared(Scores)
    if not has_validation:
        del scores[fields_of(Scores)["validation_accuracy"].heading]
    return {
        "": lambda row: f"client {row['client']}",
        "role": lambda row: "Byzantine" if row["is_byzantine"] else "honest",
        "round": client.pop("round"),
        **scores,
        "Byzantine neighbours": lambda row: _byzantine_neighbours(run, row["client"]),
        **client,
        **_declared(RoundMeans),
    }


def _declared(table: type[Any]) -> dict[str, Cell]:
    """Return the columns of a part of metrics.csv that have a heading."""
    return {
        field.heading: partial(_cell, name=name, unit=field.unit)
        for name, field in fields_of(table).items()
        if field.heading
    }


def _cell(row: Row, name: str, unit: str) -> str:
    return number(row[name], unit)


def _byzantine_neighbours(run: Run, client: int) -> str:
    neighbours = set(run.graph.adj.get(client, ()))
    return f"{len(neighbours & run.byzantine)} of {len(neighbours)}"
