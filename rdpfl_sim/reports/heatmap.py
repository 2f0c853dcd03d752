"""The picture of a sweep's table: a coloured field a cell."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rdpfl_sim.reports.figures import INK, MUTED, new_figure, save

MAX_CELLS = 2_000  # of more, no number could be read


def draw_table(table: Any, path: Path) -> Path | None:
    """Write the picture and return its path; None for a table too small, or too large, to be one."""
    num_cells = len(table.rows) * len(table.columns)
    return save(table_figure(table), path) if 4 <= num_cells <= MAX_CELLS else None


def table_figure(table: Any) -> Figure:
    """Rows and columns as in the table; the colours run from the least mean to the largest.

    Their range is at least a tenth of the largest, so that chance does not look like a finding.
    """
    means = np.full((len(table.rows), len(table.columns)), np.nan)
    for (row, column), estimate in table.cells.items():
        means[table.rows.index(row), table.columns.index(column)] = estimate.mean
    labels = [" / ".join(row) for row in table.rows]
    width = 1.2 + 0.09 * max(map(len, labels)) + 0.95 * len(table.columns)
    figure = new_figure(
        (table.title, " x ".join((*table.corner, *table.across))),
        max(7.0, width),
        1.7 + 0.36 * len(table.rows),
    )
    axes = figure.subplots()
    low, high = _range(means)
    image = axes.imshow(means, cmap="viridis", aspect="auto", vmin=low, vmax=high)
    axes.set_yticks(range(len(labels)), labels, color=INK, fontsize=10)
    headings = ["\n".join(column) for column in table.columns]
    axes.set_xticks(range(len(headings)), headings, color=INK, fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _separate(axes, [column[0] for column in table.columns], [row[0] for row in table.rows])
    _write(axes, means, (low, high), table.digits)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelcolor=MUTED)
    return figure


def _separate(axes: Axes, columns: list[str], rows: list[str]) -> None:
    """A white gap between columns, and between rows, whose first labels differ, if others agree."""
    for draw, labels in ((axes.axvline, columns), (axes.axhline, rows)):
        if len(set(labels)) < len(labels):
            for place, (before, after) in enumerate(pairwise(labels)):
                if before != after:
                    draw(place + 0.5, color="white", lw=4)


def _range(means: Any) -> tuple[float, float]:
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    margin = max(0.0, 0.1 * max(abs(low), abs(high)) - (high - low)) / 2
    return low - margin, high + margin


def _write(axes: Axes, means: Any, limits: tuple[float, float], digits: int) -> None:
    """The numbers, dark on light fields and light on dark ones."""
    low, high = limits
    for (row, column), mean in np.ndenumerate(means):
        if np.isfinite(mean):
            light = high > low and (mean - low) / (high - low) > 0.6
            text = f"{mean:.{digits}f}"
            axes.text(
                column, row, text, ha="center", va="center", fontsize=9, color=INK if light else "white"
            )
