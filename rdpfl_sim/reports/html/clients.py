"""Every client by itself: a small curve, and a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import polars as pl

from rdpfl_sim.frames import Run
from rdpfl_sim.reports.figures import Curve
from rdpfl_sim.reports.html.accuracy import curves, honest_mean
from rdpfl_sim.reports.html.page import Card, missing, table
from rdpfl_sim.reports.text import multiple

MAX_SMALL = 60
MAX_ROWS = 300
MAX_POINTS = 80


def client_cards(run: Run, metrics: pl.DataFrame) -> list[Card]:
    """Small multiples and a table, of some clients if there are many."""
    last = metrics.group_by("client", maintain_order=True).last().sort("client")
    if last.height == 0:
        return [missing("Clients", "No client has been evaluated yet, or metrics.csv is missing.")]
    return [_small_multiples(metrics, last), _table(run, last)]


def chosen(last: pl.DataFrame, limit: int) -> list[int]:
    """Some clients: honest ones from the worst to the best in equal steps, and a share of Byzantine ones."""
    if last.height <= limit:
        return [int(client) for client in last["client"]]
    ranked = last.sort("personal_accuracy", "client", nulls_last=False)
    share = round(limit * last["is_byzantine"].mean())  # type: ignore[operator, arg-type]
    found: list[int] = []
    for is_byzantine, num in ((False, limit - share), (True, share)):
        members = ranked.filter(pl.col("is_byzantine") == is_byzantine)["client"].to_numpy()
        places = np.linspace(0, len(members) - 1, min(num, len(members))).round().astype(int)
        found += [int(client) for client in members[places]]
    return sorted(found)


def _small_multiples(metrics: pl.DataFrame, last: pl.DataFrame) -> Card:
    found = curves(metrics)
    shown = chosen(last, MAX_SMALL)
    rounds, mean = honest_mean(metrics)
    span = max((curve.round[-1] for curve in found.values()), default=1) or 1
    top = max((float(curve.accuracy.max()) for curve in found.values()), default=1) or 1
    path = _path(rounds, mean, span, top)
    roles = dict(last.select("client", "is_byzantine").rows())
    pictures = "".join(_small(client, found.get(client), roles[client], path, span, top) for client in shown)
    note = ""
    if len(shown) < last.height:
        note = (
            f"{len(shown)} of {last.height:,} clients are shown: from the worst to the best in equal steps."
        )
    return Card(
        "Every client",
        f"Personal accuracy by round, from 0 to {top:.2f}; dashed: honest mean; orange: Byzantine.",
        html=f'<div class="clients">{pictures}</div>',
        note=note,
        wide=True,
    )


def _small(client: int, curve: Curve | None, is_byzantine: bool, mean: str, span: float, top: float) -> str:
    last = "-" if curve is None else f"{curve.accuracy[-1]:.3f}"
    own = "" if curve is None else _path(curve.round.tolist(), curve.accuracy.tolist(), span, top)
    role = "byzantine" if is_byzantine else "honest"
    words = f"client {client}, {role}: last personal accuracy {last}"
    return (
        f'<div class="client {role}" title="{escape(words)}"><div class="who"><span>client {client}</span>'
        f'<span>{last}</span></div><svg viewBox="0 0 100 50" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(words)}"><line class="base" x1="0" y1="50" x2="100" y2="50"/>'
        f'<path class="mean" d="{mean}"/><path class="own" d="{own}"/></svg></div>'
    )


def _path(x: Sequence[float], y: Sequence[float], span: float, top: float) -> str:
    step = max(1, len(x) // MAX_POINTS)
    places = [*range(0, len(x) - 1, step), len(x) - 1] if x else []
    points = [f"{100 * x[i] / span:.1f} {50 - 48 * y[i] / top:.1f}" for i in places]
    return f"M{'L'.join(points)}" if points else ""


def _table(run: Run, last: pl.DataFrame) -> Card:
    neighbours: dict[int, list[int]] = {}
    for i, j in run.topology["edges"]:
        neighbours.setdefault(i, []).append(j)
        neighbours.setdefault(j, []).append(i)
    worst_first = last.sort("is_byzantine", "personal_accuracy", "client", nulls_last=False)
    rows = []
    for row in worst_first.head(MAX_ROWS).iter_rows(named=True):
        around = neighbours.get(row["client"], [])
        liars = sum(other in run.byzantine for other in around)
        rows.append(
            (
                f"client {row['client']}",
                "Byzantine" if row["is_byzantine"] else "honest",
                f"{row['round']}",
                *(
                    _score(row[column])
                    for column in ("personal_accuracy", "personal_loss", "global_accuracy")
                ),
                f"{liars} of {len(around)}",
                "-" if row["hops"] is None else row["hops"],
                *(_score(row[column], 2) for column in ("used_per_round", "mean_age", "byzantine_weight")),
                "-" if row["neighbour_share"] is None else multiple(row["neighbour_share"]),
            )
        )
    head = (
        *(
            "",
            "role",
            "round",
            "personal accuracy",
            "loss",
            "global accuracy",
            "Byzantine neighbours",
            "hops",
        ),
        *("used a round", "age", "Byzantine weight", "neighbours' share"),
    )
    more = f"The first {MAX_ROWS} of {last.height:,} clients are listed." if last.height > MAX_ROWS else ""
    return Card(
        "Last evaluations",
        "Honest clients first, the worst at the top. Hops: links to the nearest attacker. "
        "The last four columns are means since the evaluation before; neighbours' share is how far they "
        "moved the model, relative to its own training.",
        html=table(head, rows, "figures"),
        note=more,
        wide=True,
    )


def _score(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.2g}"
