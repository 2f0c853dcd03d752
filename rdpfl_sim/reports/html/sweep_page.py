"""The report of a sweep: heat maps and tables with intervals, paired differences, curves and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import cycle
from textwrap import wrap

import numpy as np

from rdpfl_sim.intervals import EXPLANATION, MeanInterval
from rdpfl_sim.records import metrics
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.reports.chart_figure import variable_label
from rdpfl_sim.reports.figures import honest_mean
from rdpfl_sim.reports.html.page import (
    Card,
    HtmlTable,
    Page,
    Plot,
    Tab,
    Tile,
    Trace,
    axis,
    band,
    compact,
    dots,
    escape_markup,
    line,
    round_axis,
)
from rdpfl_sim.reports.text import escape_control, quantity, sweep_warnings
from rdpfl_sim.results import Sweep
from rdpfl_sim.results.charts import (
    Chart,
    Point,
    Series,
    number_of,
    scales_of,
    table_charts,
)
from rdpfl_sim.results.sweep import HEADLINE, SweepRun, baseline_case, compared_axis
from rdpfl_sim.results.tables import Labels, Table, TableLayout, explanations, make_table, read_layouts

WORST = "accuracy.honest.personal.worst"
MAX_CELLS = 1_500
MAX_ROWS = 500
MAX_CURVES = 600
MAX_VIEWS = 12


def sweep_page(sweep: Sweep) -> Page:
    """Build the report of a sweep."""
    runs = sweep.runs
    statuses = Counter(run.run.status for run in runs)
    complete = len(runs) == sweep.num_planned and all(status.is_complete for status in statuses)
    layouts = _layouts(sweep) if runs else []
    tables = [card for layout in layouts for card in _layout_cards(sweep, layout)]
    tabs = [
        Tab("Tables", tables or [_no_runs("Tables")]),
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
    axes = [f"{name}: {quantity(len(labels), 'case')}" for name, labels in sweep.axes.items()]
    moments = " or ".join(metrics.MOMENTS[moment] for moment in sweep.moments)
    accuracy = [f"accuracy {moments}"] if moments else []
    return escape_control(" · ".join([*(axes or ["one scenario"]), *accuracy]))


def _no_runs(title: str) -> Card:
    return Card(title, missing="No run is complete yet.")


def _layouts(sweep: Sweep) -> list[TableLayout]:
    """Return the tables of the sweep or, if it has none, the mean and the worst accuracy of each case."""
    if sweep.plan.get("tables"):
        return read_layouts(sweep.plan["tables"], sweep.axes)
    columns = [_compared_axis(sweep)] if len(sweep.axes) > 1 else []
    metrics = {"Mean accuracy of honest clients": HEADLINE, "Worst honest client": WORST}
    return [
        TableLayout(title=title, columns=columns, metrics={"accuracy": path})
        for title, path in metrics.items()
    ]


def _compared_axis(sweep: Sweep) -> str:
    """Return the axis of methods if there is one, otherwise the last axis that varies."""
    varying = [name for name, labels in sweep.axes.items() if len(labels) > 1] or [*sweep.axes]
    return compared_axis(varying)


def _layout_cards(sweep: Sweep, layout: TableLayout) -> list[Card]:
    """Show each metric of a table as a chart or a heat map, and the table itself."""
    table = make_table(sweep, layout)
    if not table.cells:
        return [Card(table.title, missing="No complete run has values for this table.")]
    cards = [_metric_card(sweep, layout, name, table.title) for name in layout.metrics]
    return [*(card for card in cards if card is not None), _values_card(table)]


def _metric_card(sweep: Sweep, layout: TableLayout, name: str, title: str) -> Card | None:
    title = f"{title}: {name}" if len(layout.metrics) > 1 else title
    found = table_charts(sweep, layout, name)
    if isinstance(found, Table):
        if not 2 <= len(found.rows) * len(found.columns) <= MAX_CELLS:
            return None
        figure = _heat_map(found, sweep.metric_label(layout.metrics[name]))
        return Card(title, "Means over seeds.", {"heat map": figure}, wide=True)
    if not found:
        return None
    views = {
        escape_control(panel) or "all": chart_plot(sweep, chart)
        for panel, chart in [*found.items()][:MAX_VIEWS]
    }
    note = f"The first {MAX_VIEWS} of {len(found)} combinations are shown." if len(found) > MAX_VIEWS else ""
    return Card(title, "Means over seeds with 95 % intervals (Student's t).", views, note=note, wide=True)


def _values_card(table: Table) -> Card:
    head = [*table.corner, *(" / ".join(column) for column in table.columns)]
    rows = [[*row, *(table.text(row, column) for column in table.columns)] for row in table.rows[:MAX_ROWS]]
    note = f"{MAX_ROWS} of {len(table.rows):,} rows are shown." if len(table.rows) > MAX_ROWS else ""
    text = " ".join([f"{table.note[0].upper()}{table.note[1:]}.", *explanations([table])])
    content = HtmlTable(head, rows, "figures")
    return Card(f"{table.title}: values", text, content=content, note=note, wide=True)


def _heat_map(table: Table, scale: str, differences: bool = False) -> Plot:
    """Return a heat map of the means in a table, or of differences; `scale` labels the colour scale."""
    cells = [[table.cells.get((row, column)) for column in table.columns] for row in table.rows]
    label, hover = (_difference_label, _difference_text) if differences else (_mean_label, interval_text)
    category: dict[str, object] = {"type": "category", "showgrid": False}
    trace = {
        "type": "heatmap",
        "z": [compact(None if cell is None else cell.mean for cell in row) for row in cells],
        "zmid": 0 if differences else None,
        "xgap": 3,
        "ygap": 3,
        "hoverongaps": False,
        "x": [escape_markup(" / ".join(column)) for column in table.columns],
        "y": [escape_markup(" / ".join(row)) for row in table.rows],
        "text": [["" if cell is None else label(cell) for cell in row] for row in cells],
        "customdata": [["" if cell is None else hover(cell) for cell in row] for row in cells],
        "texttemplate": "%{text}" if len(table.columns) <= 14 else "",
        "hovertemplate": "<b>%{y} · %{x}</b><br>%{customdata}<extra></extra>",
        "colorbar": {
            "thickness": 12,
            "outlinewidth": 0,
            "len": 0.9,
            "title": {
                "text": "<br>".join(wrap(escape_markup(scale), 24)),
                "side": "right",
                "font": {"size": 12.5},
            },
        },
        "colorscale": "@diverging" if differences else "Viridis",
    }
    layout = {
        "xaxis": axis(escape_markup(", ".join(table.across)), side="top", **category),
        "yaxis": axis(escape_markup(", ".join(table.corner)), autorange="reversed", **category),
        "margin": {"t": 70, "b": 20},
    }
    return Plot([trace], layout, height=min(1_200, 150 + 44 * max(2, len(table.rows))))


def _mean_label(estimate: MeanInterval) -> str:
    return f"{estimate.mean:,.0f}" if abs(estimate.mean) >= 1_000 else f"{estimate.mean:.3f}"


def _difference_label(difference: MeanInterval) -> str:
    """Return a difference with its sign, in bold if its interval excludes zero."""
    text = f"{difference.mean:+,.0f}" if abs(difference.mean) >= 1_000 else f"{difference.mean:+.3f}"
    return f"<b>{text}</b>" if difference.excludes_zero else text


def _difference_cards(sweep: Sweep) -> list[Card]:
    """Show the paired differences of each case from a baseline, per axis."""
    cards = [
        _difference_card(sweep, name, labels)
        for name, labels in sweep.axes.items()
        if len(labels) > 1 and sweep.runs
    ]
    return [card for card in cards if card is not None] or [
        Card("Differences", missing="No two complete runs differ in exactly one axis.")
    ]


def _difference_card(sweep: Sweep, name: str, cases: list[str]) -> Card | None:
    baseline = baseline_case(cases)
    found = {
        view: differences
        for view, metric in (("mean", HEADLINE), ("worst client", WORST))
        if (differences := sweep.differences(name, baseline, metric))
    }
    if not found:
        return None
    title = f"{name}: difference from {baseline}"
    text = (
        f"Accuracy of honest clients minus their accuracy with {baseline}, paired by seed, with all other "
        "settings equal."
    )
    if _has_numeric_axis(sweep):
        head, rows = _difference_rows(sweep, found)
        note = f"{MAX_ROWS} of {len(rows):,} rows are shown." if len(rows) > MAX_ROWS else ""
        table = HtmlTable(head, rows[:MAX_ROWS], "figures")
        text = f"{text} {EXPLANATION}"
        return Card(title, text, content=table, note=note, wide=True)
    views = {view: _difference_map(sweep, name, differences) for view, differences in found.items()}
    return Card(title, f"{text} Bold: the 95 % interval excludes zero.", views, wide=True)


def _has_numeric_axis(sweep: Sweep) -> bool:
    """Return whether the cases of an axis that varies are numbers."""
    return any(
        len(labels) > 1 and all(number_of(label) is not None for label in labels)
        for labels in sweep.axes.values()
    )


def _difference_rows(
    sweep: Sweep, found: Mapping[str, Mapping[Labels, MeanInterval]]
) -> tuple[list[str], list[list[str]]]:
    """Return a head, and one row per case with the differences of the mean and of the worst client."""
    cases = list(dict.fromkeys(labels for differences in found.values() for labels in differences))
    rows = [
        [*labels, *(_difference_cell(differences.get(labels)) for differences in found.values())]
        for labels in cases
    ]
    return [*sweep.axes, *found], rows


def _difference_cell(difference: MeanInterval | None) -> str:
    if difference is None:
        return "-"
    interval = "" if difference.half_width is None else f" ± {difference.half_width:.4f}"
    return f"{difference.mean:+.4f}{interval}"


def _difference_map(sweep: Sweep, name: str, differences: Mapping[Labels, MeanInterval]) -> Plot:
    index = [*sweep.axes].index(name)
    cells: dict[tuple[Labels, Labels], MeanInterval] = {
        ((*labels[:index], *labels[index + 1 :]) or ("all",), (labels[index],)): difference
        for labels, difference in differences.items()
    }
    rows = list(dict.fromkeys(row for row, _ in cells))[:MAX_ROWS]
    found = {column for _, column in cells}
    columns: list[Labels] = [(label,) for label in sweep.axes[name] if (label,) in found]
    others = tuple(axis for axis in sweep.axes if axis != name)
    table = Table("", others, (name,), rows, columns, cells, {}, 4)
    return _heat_map(table, "Difference in accuracy", differences=True)


def _difference_text(difference: MeanInterval) -> str:
    if difference.half_width is None:
        return f"{difference.mean:+.4f}, one pair"
    verdict = "the interval excludes zero" if difference.excludes_zero else "the interval includes zero"
    return f"{difference.mean:+.4f} ± {difference.half_width:.4f} over {difference.num} pairs<br>{verdict}"


def _curves_card(sweep: Sweep) -> Card:
    """Show mean honest accuracy by round: one line per case, one view per combination of the other axes."""
    if not sweep.runs:
        return _no_runs("Curves")
    if len(sweep.runs) > MAX_CURVES:
        return Card("Curves", missing=f"Curves are omitted for sweeps with more than {MAX_CURVES} runs.")
    compared = _compared_axis(sweep) if sweep.axes else None
    groups: dict[str, dict[str, list[SweepRun]]] = {}
    for run in sweep.runs:
        view = " / ".join(label for name, label in run.labels.items() if name != compared) or "all"
        groups.setdefault(view, {}).setdefault(run.labels.get(compared or "", "all"), []).append(run)
    views = {escape_control(view): _curves_figure(cases) for view, cases in [*groups.items()][:MAX_VIEWS]}
    views = {view: figure for view, figure in views.items() if figure.traces}
    if not views:
        return Card("Curves", missing="No client has been evaluated yet.")
    note = f"The first {MAX_VIEWS} of {len(groups)} combinations are shown."
    lines = f" One line per case of {compared}." if compared else ""
    text = f"Mean personal accuracy of honest clients, averaged over seeds.{lines}"
    return Card("Curves", text, views, note=note if len(groups) > MAX_VIEWS else "", wide=True)


def _curves_figure(cases: dict[str, list[SweepRun]]) -> Plot:
    traces = []
    num_rounds = 0
    for colour, (label, runs) in zip(cycle(COLOURS), cases.items(), strict=False):
        curves = [honest_mean(run.run.evaluations()) for run in runs]
        rounds = sorted({round_ for x, _ in curves for round_ in x})
        if rounds:
            num_rounds = max(num_rounds, int(rounds[-1]))
            mean = compact(np.mean([np.interp(rounds, x, y) for x, y in curves if x], axis=0))
            name = escape_markup(label)
            hover = f"%{{y}}<extra>{name}</extra>"
            traces.append(line(compact(rounds), mean, name, colour, hovertemplate=hover))
    layout = {
        "xaxis": round_axis(num_rounds),
        "yaxis": axis("personal accuracy"),
        "hovermode": "x unified",
    }
    return Plot(traces, layout, 440)


def _runs_card(sweep: Sweep) -> Card:
    rows = [
        (
            run.run.folder.name,
            *run.labels.values(),
            run.seed,
            run.run.status,
            *(_format(run.value(statistic.path)) for statistic in metrics.STATISTICS),
            _format(run.value("simulated_s"), 1),
        )
        for run in sweep.runs[:MAX_ROWS]
    ]
    if not rows:
        return _no_runs("Runs")
    first, *others = (statistic.heading for statistic in metrics.STATISTICS)
    accuracies = (f"{first} accuracy", *others)
    head = ("folder", *sweep.axes, "seed", "status", *accuracies, "simulated (s)")
    note = f"{MAX_ROWS} of {len(sweep.runs):,} runs are listed." if len(sweep.runs) > MAX_ROWS else ""
    text = "For details of a run, use rdpfl-sim report FOLDER."
    return Card("Runs", text, content=HtmlTable(head, rows, "figures"), note=note, wide=True)


def _format(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _plan_card(sweep: Sweep) -> Card:
    rows = [(name, ", ".join(labels)) for name, labels in sweep.axes.items()]
    seeds = sorted({run.seed for run in sweep.runs})
    rows += [("seeds", ", ".join(map(str, seeds)) or "-"), ("folder", sweep.folder.resolve().name)]
    text = "The axes of the sweep."
    if not sweep.plan:
        text = "sweep.json is missing: these are the settings in which the runs differ."
    return Card("Plan", text, content=HtmlTable((), rows, "facts"), wide=True)


def _tiles(sweep: Sweep, statuses: Counter[RunStatus]) -> list[Tile]:
    runs = sweep.runs
    num_complete = sum(num for status, num in statuses.items() if status.is_complete)
    seeds = {run.seed for run in runs}
    tiles = [
        Tile("runs", f"{num_complete:,}", f"of {sweep.num_planned:,}"),
        Tile(
            "cases",
            f"{len({tuple(run.labels.values()) for run in runs}):,}",
            quantity(len(sweep.axes), "axis", "axes"),
        ),
        Tile("seeds", f"{len(seeds):,}", "per case" if seeds else ""),
    ]
    estimates = sweep.intervals() if runs else {}
    if estimates:
        for title, select in (("best case", max), ("worst case", min)):
            labels, estimate = select(estimates.items(), key=lambda item: item[1].mean)
            tiles.append(Tile(title, f"{estimate.mean:.3f}", escape_control(" / ".join(labels))))
    return tiles


def _warnings(sweep: Sweep, statuses: Counter[RunStatus]) -> list[str]:
    warnings = []
    num_missing = sweep.num_planned - len(sweep.runs)
    if num_missing:
        warnings.append(
            f"{num_missing:,} of {quantity(sweep.num_planned, 'run')} missing: not started, or failed."
        )
    warnings += [
        f"{quantity(num, 'run')} with status {escape_control(status)}."
        for status, num in statuses.items()
        if not status.is_complete
    ]
    found = sweep_warnings([run.run.summary for run in sweep.runs])
    return [*warnings, *map(escape_control, found)]


COLOURS = ("@honest", "@byzantine", "@green", "@purple", "@yellow", "@sky", "@lost", "@muted")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")


def chart_plot(sweep: Sweep, chart: Chart) -> Plot:
    """Return a chart; scales are logarithmic where the values span decades."""
    traces = [trace for series in chart.series for trace in _series_traces(chart, series)]
    x_scale, y_scale = scales_of([chart])
    x_label = escape_markup(variable_label(sweep, chart.x))
    layout = {
        "xaxis": axis(x_label, type="category" if chart.categories else x_scale),
        "yaxis": axis(escape_markup(sweep.metric_label(chart.y)), type=y_scale),
    }
    return Plot(traces, layout, 400)


def interval_text(estimate: MeanInterval) -> str:
    """Return a mean with its interval and deviation, in two lines."""
    if estimate.half_width is None:
        return f"{estimate.mean:.4f}, one seed"
    return (
        f"{estimate.mean:.4f} ± {estimate.half_width:.4f} (95 % interval)<br>"
        f"standard deviation {estimate.deviation:.4f} over {estimate.num} seeds"
    )


def _series_traces(chart: Chart, series: Series) -> list[Trace]:
    colour = COLOURS[series.index % len(COLOURS)]
    dash = "solid" if series.index < len(COLOURS) else "dash"
    name = escape_markup(series.label)
    x, y = [_position(point) for point in series.points], compact(point.y.mean for point in series.points)
    options = {
        "customdata": [interval_text(point.y) for point in series.points],
        "hovertemplate": f"<b>{name} %{{x}}</b><br>%{{customdata}}<extra></extra>",
        "legendgroup": name,
        "showlegend": bool(series.label),
    }
    marker = {"color": colour, "symbol": SYMBOLS[series.index % len(SYMBOLS)], "size": 8}
    if not chart.is_joined:
        widths = compact(point.y.half_width or 0.0 for point in series.points)
        error = {"type": "data", "array": widths, "color": colour, "thickness": 1.5, "width": 4}
        return [dots(x, y, name, marker, error_y=error, **options)]
    low, high = (compact(getattr(point.y, end) for point in series.points) for end in ("low", "high"))
    joined = {**line(x, y, name, colour, dash=dash), "mode": "lines+markers", "marker": marker, **options}
    return [*band(x, low, high, name, colour, legend=False), joined]


def _position(point: Point) -> object:
    return escape_markup(point.x) if isinstance(point.x, str) else point.x
