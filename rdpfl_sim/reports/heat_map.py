"""A heat map of one metric of a sweep over categories, for papers."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rdpfl_sim.reports.accuracy_curves import Array
from rdpfl_sim.reports.figure_style import CHARACTERS_PER_INCH, FONT_SIZE, INK, fit_lines, text_colour
from rdpfl_sim.reports.text import escape_control

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.tables import Table

COLOURS = mpl.colormaps["viridis"]
ROW_HEIGHT = 0.22


def heat_map_figure(table: Table, metric: str, row_axes: str, column_axes: str) -> Figure:
    """Draw the means of a table with one metric; the colour scale and both axes are labelled in words.

    The colour range is at least a tenth of the largest mean, so that random differences do not stand out.
    """
    means = np.full((len(table.rows), len(table.columns)), np.nan)
    for (row, column), estimate in table.cells.items():
        means[table.rows.index(row), table.columns.index(column)] = estimate.mean
    rows = [escape_control(" / ".join(row)) for row in table.rows]
    columns = ["\n".join(map(escape_control, column)) for column in table.columns]
    digits = _digits(means, table.digits)
    numbers = [f"{mean:,.{digits}f}" for mean in means.flat if np.isfinite(mean)]
    headings = "\n".join(columns).split("\n")
    cell = 1 + max(len(text) for text in (*numbers, *headings))
    width = 1.2 + (max(map(len, rows)) + cell * len(columns)) / CHARACTERS_PER_INCH
    num_lines = max(text.count("\n") for text in columns) + 1
    height = max(1.6, 0.5 + ROW_HEIGHT * len(rows) + 0.14 * num_lines)
    figure = Figure(figsize=(max(3.4, width), height), layout="constrained")
    axes = figure.subplots()
    low, high = _colour_range(means)
    image = axes.imshow(means, cmap=COLOURS, aspect="auto", vmin=low, vmax=high)
    _label_cases(axes, rows, columns, row_axes, column_axes)
    _separate_groups(axes, [column[0] for column in table.columns], [row[0] for row in table.rows])
    _write_means(axes, means, (means - low) / ((high - low) or 1.0), digits)
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label(fit_lines(metric, height - 0.4), fontsize=FONT_SIZE, color=INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelcolor=INK, labelsize=FONT_SIZE)
    return figure


def _digits(means: Array, digits: int) -> int:
    """Return the number of decimals: fewer for large numbers, none for whole numbers."""
    known = means[np.isfinite(means)]
    if (known == np.round(known)).all() or abs(known).max() >= 1_000:
        return 0
    return digits if abs(known).max() < 10 else min(digits, 2)


def _label_cases(axes: Axes, rows: list[str], columns: list[str], row_axes: str, column_axes: str) -> None:
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), columns)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(column_axes)
    axes.set_ylabel(row_axes)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    labels = [axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()]
    for label in labels:
        label.set(fontsize=FONT_SIZE, color=INK, parse_math=False)


def _separate_groups(axes: Axes, columns: list[str], rows: list[str]) -> None:
    """Draw white gaps between columns and between rows whose first labels differ, unless all of them do."""
    for draw_line, labels in ((axes.axvline, columns), (axes.axhline, rows)):
        if len(set(labels)) < len(labels):
            for position, (before, after) in enumerate(pairwise(labels)):
                if before != after:
                    draw_line(position + 0.5, color="white", lw=4)


def _colour_range(means: Array) -> tuple[float, float]:
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    margin = max(0.0, 0.1 * max(abs(low), abs(high)) - (high - low)) / 2
    return low - margin, high + margin


def _write_means(axes: Axes, means: Array, shades: Array, digits: int) -> None:
    """Write each mean on its cell, whose colour is at the position `shades` of the colour scale."""
    for (row, column), mean in np.ndenumerate(means):
        if np.isfinite(mean):
            colour = text_colour(COLOURS(float(shades[row, column])))
            text = f"{mean:,.{digits}f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=FONT_SIZE, color=colour)
