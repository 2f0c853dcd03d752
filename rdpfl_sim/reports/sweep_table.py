"""Tables of a sweep, for a terminal and as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import rich.table
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.text import Text

from rdpfl_sim.reports.accuracy_curves import Array
from rdpfl_sim.reports.figure_style import INK, MUTED, new_figure, save
from rdpfl_sim.reports.text import escape_control

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.tables import Labels, Table

MAX_CELLS = 2_000  # with more cells, the numbers would be illegible


def sweep_table(table: Table, width: int) -> RenderableType:
    """Return a table of a sweep; a table that is too wide is split by columns."""
    title = Text(escape_control(table.title), style="bold")
    tables = [_table(table, columns) for columns in _columns_that_fit(table, width)]
    return Group(title, *tables, Text(table.note))


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


def draw_table(table: Table, path: Path) -> Path | None:
    """Write a heat map and return its path; return None if the table has too few or too many cells."""
    num_cells = len(table.rows) * len(table.columns)
    return save(table_figure(table), path) if 4 <= num_cells <= MAX_CELLS else None


def table_figure(table: Table) -> Figure:
    """Draw rows and columns as in the table, with colours from the smallest to the largest mean.

    The colour range is at least a tenth of the largest mean, so that random differences do not stand out.
    """
    means = np.full((len(table.rows), len(table.columns)), np.nan)
    for (row, column), estimate in table.cells.items():
        means[table.rows.index(row), table.columns.index(column)] = estimate.mean
    labels = [" / ".join(row) for row in table.rows]
    width = 1.2 + 0.09 * max(map(len, labels)) + 0.95 * len(table.columns)
    axis_names = {"rows": " / ".join(table.corner), "columns": " / ".join(table.across)}
    description = "; ".join(f"{axis}: {names}" for axis, names in axis_names.items() if names)
    figure = new_figure(table.title, description, max(7.0, width), 1.7 + 0.36 * len(table.rows))
    axes = figure.subplots()
    low, high = _colour_range(means)
    image = axes.imshow(means, cmap="viridis", aspect="auto", vmin=low, vmax=high)
    axes.set_yticks(range(len(labels)), labels, color=INK, fontsize=10)
    headings = ["\n".join(column) for column in table.columns]
    axes.set_xticks(range(len(headings)), headings, color=INK, fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _separate_groups(axes, [column[0] for column in table.columns], [row[0] for row in table.rows])
    _write_means(axes, means, (low, high), table.digits)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelcolor=MUTED)
    return figure


def _separate_groups(axes: Axes, columns: list[str], rows: list[str]) -> None:
    """Draw white gaps between columns and rows whose first labels differ, unless all first labels differ."""
    for draw_line, labels in ((axes.axvline, columns), (axes.axhline, rows)):
        if len(set(labels)) < len(labels):
            for position, (before, after) in enumerate(pairwise(labels)):
                if before != after:
                    draw_line(position + 0.5, color="white", lw=4)


def _colour_range(means: Array) -> tuple[float, float]:
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    margin = max(0.0, 0.1 * max(abs(low), abs(high)) - (high - low)) / 2
    return low - margin, high + margin


def _write_means(axes: Axes, means: Array, colour_range: tuple[float, float], digits: int) -> None:
    low, high = colour_range
    for (row, column), mean in np.ndenumerate(means):
        if np.isfinite(mean):
            is_light = high > low and (mean - low) / (high - low) > 0.6
            colour = INK if is_light else "white"
            axes.text(column, row, f"{mean:.{digits}f}", ha="center", va="center", fontsize=9, color=colour)
