"""The report of a sweep: tables with intervals, as heat maps too, paired differences, curves and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rdpfl_sim.frames import Sweep
from rdpfl_sim.frames.sweep import HEADLINE, SweepRun
from rdpfl_sim.reports.html.accuracy import honest_mean
from rdpfl_sim.reports.html.page import Card, Page, Tab, Tile, missing, table
from rdpfl_sim.reports.html.plot import Figure, Trace, axis, compact, line, round_axis, rounded, safe
from rdpfl_sim.reports.text import escape_control

if TYPE_CHECKING:
    from rdpfl_sim.intervals import MeanInterval
    from rdpfl_sim.sweeps.tables import Labels, Table

WORST = "accuracy.honest.personal.worst"
MAX_CELLS = 1_500
MAX_ROWS = 500
MAX_CURVES = 600
MAX_VIEWS = 12
COLOURS = ("@honest", "@byzantine", "@green", "@purple", "@yellow", "@sky", "@lost", "@muted")


def sweep_page(sweep: Sweep) -> Page:
    """Everything there is to see of a sweep."""
    runs = sweep.runs
    statuses = Counter(run.run.status for run in runs)
    complete = len(runs) == sweep.num_planned and set(statuses) <= {"finished", "out of time"}
    shown = sweep.tables(_layouts(sweep)) if runs else []
    tabs = [
        Tab("Tables", [card for each in shown for card in _table_cards(each)] or [_nothing("Tables")]),
        Tab("Differences", _difference_cards(sweep)),
        Tab("Curves", [_curves_card(sweep)]),
        Tab("Runs", [_runs_card(sweep)]),
        Tab("Plan", [_plan_card(sweep)]),
    ]
    return Page(
        title=escape_control(sweep.name),
        status="complete" if complete else "unfinished",
        facts=_facts(sweep),
        tiles=_tiles(sweep, statuses),
        warnings=_warnings(sweep, statuses),
        tabs=tabs,
    )


def _facts(sweep: Sweep) -> str:
    axes = (f"{name}: {len(labels)} cases" for name, labels in sweep.axes.items())
    return escape_control(" · ".join(axes) or "one scenario")


def _nothing(title: str) -> Card:
    return missing(title, "No run is complete yet.")


def _layouts(sweep: Sweep) -> list[dict[str, Any]]:
    """The tables that the sweep's file asks for, or the mean and the worst accuracy of every case."""
    if sweep.plan.get("tables"):
        return list(sweep.plan["tables"])
    columns = [_across(sweep)] if len(sweep.axes) > 1 else []
    metrics = {"Mean accuracy of honest clients": HEADLINE, "Worst honest client": WORST}
    return [
        {"title": title, "columns": columns, "metrics": {"accuracy": path}, "spread": "interval"}
        for title, path in metrics.items()
    ]


def _across(sweep: Sweep) -> str:
    """The axis that people compare: methods, if there are any, else the last one."""
    several = [name for name, labels in sweep.axes.items() if len(labels) > 1] or [*sweep.axes]
    return next((name for name in several if "method" in name.lower()), several[-1])


def _table_cards(found: Table) -> list[Card]:
    if not found.cells:
        return [missing(found.title, "No complete run has the numbers of this table.")]
    cards = []
    num_cells = len(found.rows) * len(found.columns)
    if 2 <= num_cells <= MAX_CELLS:
        values = {key: (_short(each.mean), each.mean, _told(each)) for key, each in found.cells.items()}
        figure = _heat_map(found.rows, found.columns, values, found.corner, found.across, diverging=False)
        cards.append(Card(found.title, "Colours: means over seeds.", {"heat map": figure}, wide=True))
    version = found.versions[-1]
    head = [*found.corner, *(" / ".join(column) for column in found.columns)]
    rows = [[*row, *(version.text(row, column) for column in found.columns)] for row in found.rows[:MAX_ROWS]]
    more = f"{MAX_ROWS} of {len(found.rows):,} rows are shown." if len(found.rows) > MAX_ROWS else ""
    note = version.note[0].upper() + version.note[1:] + "."
    cards.append(
        Card(f"{found.title}: numbers", note, html=table(head, rows, "figures"), note=more, wide=True)
    )
    return cards


def _told(estimate: MeanInterval) -> str:
    if estimate.half_width is None:
        return f"{estimate.mean:.4f}, one seed"
    return (
        f"{estimate.mean:.4f} ± {estimate.half_width:.4f} (95 % interval)<br>"
        f"standard deviation {estimate.deviation:.4f} over {estimate.num} seeds"
    )


def _heat_map(
    rows: Sequence[Labels],
    columns: Sequence[Labels],
    values: dict[tuple[Labels, Labels], tuple[str, float, str]],
    corner: Labels,
    across: Labels,
    diverging: bool,
) -> Figure:
    """A coloured field a cell: what is written in it, its value, and what is told at it."""
    cells = [[values.get((row, column)) for column in columns] for row in rows]
    means = [[None if cell is None else rounded(cell[1]) for cell in row] for row in cells]
    finite = [abs(value) for row in means for value in row if value is not None]
    trace: Trace = {
        "type": "heatmap",
        "z": means,
        "xgap": 3,
        "ygap": 3,
        "hoverongaps": False,
        "x": [safe(" / ".join(column)) for column in columns],
        "y": [safe(" / ".join(row)) for row in rows],
        "text": [["" if cell is None else cell[0] for cell in row] for row in cells],
        "customdata": [["" if cell is None else cell[2] for cell in row] for row in cells],
        "texttemplate": "%{text}" if len(columns) <= 14 else "",
        "hovertemplate": "<b>%{y} · %{x}</b><br>%{customdata}<extra></extra>",
        "colorbar": {"thickness": 12, "outlinewidth": 0, "len": 0.9},
        "colorscale": "@diverging" if diverging else "Viridis",
    }
    if diverging:
        limit = max(finite, default=1.0) or 1.0
        trace |= {"zmin": -limit, "zmax": limit}
    layout = {
        "xaxis": axis(safe(", ".join(across)), type="category", side="top", showgrid=False),
        "yaxis": axis(safe(", ".join(corner)), type="category", autorange="reversed", showgrid=False),
        "margin": {"t": 70, "b": 20},
    }
    return Figure([trace], layout, height=min(1_200, 150 + 44 * max(2, len(rows))))


def _short(value: float, signed: bool = False) -> str:
    if abs(value) >= 1_000:
        return f"{value:.3g}"
    return f"{value:+.3f}" if signed else f"{value:.3f}"


def _difference_cards(sweep: Sweep) -> list[Card]:
    """For every axis: what each case changes against one of them, all else equal, paired by seed."""
    cards = [
        _difference_card(sweep, name, labels)
        for name, labels in sweep.axes.items()
        if len(labels) > 1 and sweep.runs
    ]
    return [card for card in cards if card is not None] or [
        missing("Differences", "There are no two complete runs that differ in one axis only.")
    ]


def _difference_card(sweep: Sweep, name: str, cases: list[str]) -> Card | None:
    baseline = next((label for label in cases if label.lower() == "local"), cases[0])
    views = {}
    for view, metric in (("mean", HEADLINE), ("worst client", WORST)):
        found = sweep.differences(name, baseline, metric)
        if found:
            views[view] = _difference_map(sweep, name, found)
    if not views:
        return None
    text = (
        f"Accuracy of honest clients minus that with {baseline}, over pairs of equal seed, all else equal. "
        "Bold: the 95 % interval is clear of zero."
    )
    return Card(f"{name}: difference to {baseline}", text, views, wide=True)


def _difference_map(sweep: Sweep, name: str, found: dict[Labels, MeanInterval]) -> Figure:
    place = [*sweep.axes].index(name)
    values: dict[tuple[Labels, Labels], tuple[str, float, str]] = {}
    for labels, each in found.items():
        row = (*labels[:place], *labels[place + 1 :]) or ("all",)
        text = (
            f"<b>{_short(each.mean, signed=True)}</b>"
            if each.excludes_zero
            else _short(each.mean, signed=True)
        )
        values[row, (labels[place],)] = text, each.mean, _difference(each)
    rows = list(dict.fromkeys(row for row, _ in values))[:MAX_ROWS]
    columns = [(label,) for label in sweep.axes[name] if any(column == (label,) for _, column in values)]
    others = tuple(axis for axis in sweep.axes if axis != name)
    return _heat_map(rows, columns, values, others, (name,), diverging=True)


def _difference(difference: MeanInterval) -> str:
    if difference.half_width is None:
        return f"{difference.mean:+.4f}, one pair"
    verdict = "the interval is clear of zero" if difference.excludes_zero else "the interval holds zero"
    return f"{difference.mean:+.4f} ± {difference.half_width:.4f} over {difference.num} pairs<br>{verdict}"


def _curves_card(sweep: Sweep) -> Card:
    """Mean honest accuracy by round: a view a combination of the other axes, a line a case."""
    if not sweep.runs:
        return _nothing("Curves")
    if len(sweep.runs) > MAX_CURVES:
        return missing("Curves", f"The curves of more than {MAX_CURVES} runs are too many for a page.")
    across = _across(sweep) if sweep.axes else None
    groups: dict[str, dict[str, list[SweepRun]]] = {}
    for run in sweep.runs:
        view = " / ".join(label for name, label in run.labels.items() if name != across) or "all"
        groups.setdefault(view, {}).setdefault(run.labels.get(across or "", "all"), []).append(run)
    views = {escape_control(view): _curves(cases) for view, cases in [*groups.items()][:MAX_VIEWS]}
    views = {view: figure for view, figure in views.items() if figure.traces}
    if not views:
        return missing("Curves", "No client has been evaluated yet.")
    note = f"The first {MAX_VIEWS} of {len(groups)} combinations." if len(groups) > MAX_VIEWS else ""
    text = f"Mean personal accuracy of honest clients, mean over seeds; lines: {across or 'all runs'}."
    return Card("Curves", text, views, note=note, wide=True)


def _curves(cases: dict[str, list[SweepRun]]) -> Figure:
    traces = []
    for colour, (label, runs) in zip(cycle(COLOURS), cases.items(), strict=False):
        found = [honest_mean(run.run.metrics) for run in runs]
        rounds = sorted({round_ for x, _ in found for round_ in x})
        if rounds:
            lines = np.array([_at(rounds, *each) for each in found if each[0]])
            with np.errstate(all="ignore"):
                mean = compact(lines.mean(axis=0))
            hover = {"hovertemplate": f"%{{y}}<extra>{safe(label)}</extra>"}
            traces.append(line(compact(rounds), mean, safe(label), colour, **hover))
    layout = {
        "xaxis": round_axis(round_ for trace in traces for round_ in trace["x"]),
        "yaxis": axis("personal accuracy"),
        "hovermode": "x unified",
    }
    return Figure(traces, layout, 440)


def _at(rounds: list[float], x: list[float], y: list[float]) -> Any:
    return np.interp(rounds, x, y)


def _runs_card(sweep: Sweep) -> Card:
    rows = [
        (
            run.run.folder.name,
            *run.labels.values(),
            run.seed,
            run.run.status,
            _score(run.value(HEADLINE)),
            _score(run.value(WORST)),
            _score(run.value("simulated_s"), 1),
        )
        for run in sweep.runs[:MAX_ROWS]
    ]
    if not rows:
        return _nothing("Runs")
    head = ("folder", *sweep.axes, "seed", "status", "mean accuracy", "worst", "simulated (s)")
    note = f"{MAX_ROWS} of {len(sweep.runs):,} runs are listed." if len(sweep.runs) > MAX_ROWS else ""
    text = "rdpfl-sim report FOLDER tells more of each."
    return Card("Runs", text, html=table(head, rows, "figures"), note=note, wide=True)


def _score(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _plan_card(sweep: Sweep) -> Card:
    rows = [(name, ", ".join(labels)) for name, labels in sweep.axes.items()]
    seeds = sorted({run.seed for run in sweep.runs})
    rows += [("seeds", ", ".join(map(str, seeds)) or "-"), ("folder", sweep.folder.resolve().name)]
    text = (
        "What varies."
        if sweep.plan
        else "There is no sweep.json: these are the settings in which the runs differ."
    )
    return Card("Plan", text, html=table((), rows, "facts"), wide=True)


def _tiles(sweep: Sweep, statuses: Counter[str]) -> list[Tile]:
    runs = sweep.runs
    done = statuses["finished"] + statuses["out of time"]
    seeds = {run.seed for run in runs}
    tiles = [
        Tile("runs", f"{done:,}", f"of {sweep.num_planned:,}"),
        Tile("cases", f"{len({tuple(run.labels.values()) for run in runs}):,}", f"axes: {len(sweep.axes)}"),
        Tile("seeds", f"{len(seeds):,}", "a case" if seeds else ""),
    ]
    estimates = sweep.estimates() if runs else {}
    if estimates:
        for title, choose in (("best case", max), ("worst case", min)):
            labels, estimate = choose(estimates.items(), key=lambda item: item[1].mean)
            tiles.append(Tile(title, f"{estimate.mean:.3f}", escape_control(" / ".join(labels))))
    return tiles


def _warnings(sweep: Sweep, statuses: Counter[str]) -> list[str]:
    found = []
    lacking = sweep.num_planned - len(sweep.runs)
    if lacking:
        found.append(f"{lacking:,} of {sweep.num_planned:,} runs are missing: still to be run, or failed.")
    odd = {status: num for status, num in statuses.items() if status not in ("finished", "out of time")}
    found += [f"{num:,} runs are {escape_control(status)}." for status, num in odd.items()]
    warned = pl.Series(
        [len(run.run.summary.get("warnings", [])) > 0 for run in sweep.runs], dtype=pl.Boolean
    ).sum()
    if warned:
        found.append(f"Runs with warnings of their own: {warned:,}; rdpfl-sim report FOLDER tells them.")
    return found
