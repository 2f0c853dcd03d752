"""The figures of a sweep's tables, one per table and metric, as PNG and PDF.

A table with a numeric axis is drawn as lines with 95 % bands, a table of one axis as points with intervals,
and a table of categories as a heat map.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import rich.table
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.text import Text

from rdpfl_sim.reports.chart_figure import (
    COLUMN_INCHES,
    PAGE_INCHES,
    chart_figure,
    heat_map_figure,
    save_chart,
    variable_label,
)
from rdpfl_sim.reports.text import escape_control
from rdpfl_sim.results import Sweep
from rdpfl_sim.results.charts import Kind, Variable, table_charts
from rdpfl_sim.results.tables import Labels, Table, TableLayout, explanations, read_layouts

MAX_CELLS = 2_000  # with more cells, the numbers would be illegible
MAX_NARROW = 6
"""Maximum number of groups or categories in a figure of one column."""


def draw_sweep_figures(sweep: Sweep) -> list[Path]:
    """Write `table-1.png`, `table-1.pdf` and so on into the sweep folder; return their paths.

    If a table has several metrics, the names of the files contain the names of the metrics.
    """
    paths: list[Path] = []
    layouts = read_layouts(sweep.plan.get("tables") or [{}], sweep.axes)
    for number, layout in enumerate(layouts, start=1):
        for name, metric in layout.metrics.items():
            figure = metric_figure(sweep, layout, name)
            if figure is not None:
                words = re.sub(r"\W+", "_", name).strip("_") or metric.replace(".", "_")
                suffix = f"-{words}" if len(layout.metrics) > 1 else ""
                paths += save_chart(figure, sweep.folder / f"table-{number}{suffix}")
    return paths


def metric_figure(sweep: Sweep, layout: TableLayout, name: str) -> Figure | None:
    """Draw one metric of a table, or return None if it has too few or too many values."""
    found = table_charts(sweep, layout, name)
    if isinstance(found, Table):
        if not 4 <= len(found.rows) * len(found.columns) <= MAX_CELLS:
            return None
        rows, columns = (_axis_labels(sweep, axes) for axes in (found.corner, found.across))
        return heat_map_figure(found, sweep.metric_label(layout.metrics[name]), rows, columns)
    if not found:
        return None
    [first, *others] = found.values()
    is_narrow = not others and max(len(first.series), len(first.categories)) <= MAX_NARROW
    return chart_figure(sweep, found, COLUMN_INCHES if is_narrow else PAGE_INCHES)


def _axis_labels(sweep: Sweep, axes: Sequence[str]) -> str:
    known = [axis for axis in axes if axis in sweep.axes]
    return " / ".join(variable_label(sweep, Variable(axis, Kind.AXIS)) for axis in known)


def sweep_tables(tables: Sequence[Table], width: int) -> RenderableType:
    """Return the tables of a sweep and an explanation of their intervals.

    A table that is too wide is split by columns.
    """
    parts: list[RenderableType] = []
    for table in tables:
        parts.append(Text(escape_control(table.title), style="bold"))
        parts += [_table(table, columns) for columns in _columns_that_fit(table, width)]
        parts.append(Text(table.note))
    return Group(*parts, *map(Text, explanations(tables)))


def _columns_that_fit(table: Table, width: int) -> list[list[Labels]]:
    labels = [max(len(label) for label in column) for column in zip(table.corner, *table.rows, strict=True)]
    label_width = 1 + sum(labels) + 2 * len(labels)  # the left edge; a blank and a divider per column
    groups: list[list[Labels]] = [[]]
    room = width - label_width
    for column in table.columns:
        needed = 2 + max(len(line) for line in [*column, *(table.text(row, column) for row in table.rows)])
        if groups[-1] and needed > room:
            groups.append([])
            room = width - label_width
        groups[-1].append(column)
        room -= needed
    return groups


def _table(table: Table, columns: Sequence[Labels]) -> rich.table.Table:
    shown = rich.table.Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in table.corner:
        shown.add_column(escape_control(name), vertical="bottom")
    for column in columns:
        shown.add_column("\n".join(map(escape_control, column)), justify="right")
    previous: Labels = ()
    for row in table.rows:
        if previous and len(row) > 1 and row[0] != previous[0]:
            shown.add_section()
        previous = row
        shown.add_row(*map(escape_control, row), *(table.text(row, column) for column in columns))
    return shown
