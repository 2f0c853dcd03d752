"""Figures of a sweep for papers: lines with 95 % bands over numbers, points with intervals over categories.

All text has at least 8 points when the figure is printed at its own width.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import ceil, log, radians, sin
from pathlib import Path
from textwrap import fill

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter, NullLocator

from rdpfl_sim.records.summary import name_from_path
from rdpfl_sim.reports.figure_style import (
    CHARACTERS_PER_INCH,
    FAINT,
    FONT_SIZE,
    INK,
    LINE_STYLES,
    MARKERS,
    MUTED,
    SERIES_COLOURS,
    fit_lines,
    save,
    text_colour,
)
from rdpfl_sim.reports.figures import Array
from rdpfl_sim.reports.text import escape_control
from rdpfl_sim.results import Sweep
from rdpfl_sim.results.charts import Chart, Kind, Point, Series, Variable, scales_of
from rdpfl_sim.results.tables import Table

COLUMN_INCHES, PAGE_INCHES = 3.4, 7.0
"""Widths of a column and of a page in two columns."""
PANEL_HEIGHT = 2.0
LINE_HEIGHT = 0.17
TILT = 35
"""Angle of labels that would overlap, in degrees."""
DPI = 300
FORMATS = (".png", ".pdf")
MAX_PANEL_COLUMNS = 3


def save_chart(figure: Figure, path: Path) -> list[Path]:
    """Write `path`; without a .png or .pdf suffix, write both."""
    paths = [path] if path.suffix in FORMATS else [path.with_name(path.name + ending) for ending in FORMATS]
    return [save(figure, each, DPI) for each in paths]


def chart_figure(sweep: Sweep, panels: Mapping[str, Chart], width: float) -> Figure:
    """Draw charts of the same variables side by side, with common axes and one legend.

    Scales are logarithmic where the values span decades.
    """
    charts = list(panels.values())
    first = charts[0]
    num_columns = min(MAX_PANEL_COLUMNS, len(charts)) if width > COLUMN_INCHES else 1
    num_rows = ceil(len(charts) / num_columns)
    groups = {series.index: escape_control(series.label) for chart in charts for series in chart.series}
    figure = Figure(figsize=(width, num_rows * PANEL_HEIGHT + 0.45), layout="constrained")
    grid = figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
    for axes, (title, chart) in zip(grid.flat, panels.items(), strict=False):
        _style(axes)
        for series in chart.series:
            _draw_series(axes, chart, series, len(groups))
        axes.set_title(escape_control(title), fontsize=FONT_SIZE, color=INK, parse_math=False)
        axes.autoscale_view()
    for axes in grid.flat[len(charts) :]:
        axes.set_axis_off()
    _set_scales(grid[0, 0], charts)
    panel_width = (width - 0.8) / num_columns
    for axes in grid.flat[max(0, len(charts) - num_columns) : len(charts)]:  # the lowest of each column
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(fit_lines(variable_label(sweep, first.x), panel_width))
        axes.xaxis.label.set(fontsize=FONT_SIZE, color=INK, parse_math=False)
    if first.categories:
        _label_categories(figure, grid[0, 0], first.categories, panel_width)
    y_label = fit_lines(sweep.metric_label(first.y), num_rows * PANEL_HEIGHT - 0.3)
    if num_rows == 1:
        grid[0, 0].set_ylabel(y_label)
    label = grid[0, 0].yaxis.label if num_rows == 1 else figure.supylabel(y_label)
    label.set(fontsize=FONT_SIZE, color=INK, parse_math=False, multialignment="center")
    if first.by is not None:
        _add_legend(figure, escape_control(variable_label(sweep, first.by)), groups, first.is_joined)
    return figure


def _add_legend(figure: Figure, title: str, groups: Mapping[int, str], is_joined: bool) -> None:
    """Add a legend below the axes, and the height that it needs."""
    width, height = figure.get_size_inches()
    longest = max(map(len, groups.values()))
    num_columns = min(len(groups), max(1, int(width * CHARACTERS_PER_INCH / (7 + longest))))
    num_lines = 1 + ceil(len(groups) / num_columns)
    figure.set_size_inches(width, height + LINE_HEIGHT * num_lines)
    legend = figure.legend(
        handles=[_key(index, text, is_joined) for index, text in sorted(groups.items())],
        title=title,
        loc="outside lower center",
        ncols=num_columns,
        fontsize=FONT_SIZE,
        title_fontsize=FONT_SIZE,
        frameon=False,
        labelcolor=INK,
        handlelength=2.4 if is_joined else 1,
        columnspacing=1.2,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)


def variable_label(sweep: Sweep, variable: Variable) -> str:
    """Return a variable in words, with its unit: as sweep.json names it, or as its component describes it."""
    if variable.kind is Kind.METRIC:
        return sweep.metric_label(variable.name)
    words = sweep.plan.get("words", {})
    for name in (variable.name, f"{variable.name}.name"):
        if name in words:
            return str(words[name])
    for run in sweep.runs:
        setting = Variable(variable.name, Kind.SETTING)
        if setting.value(run) is not None:
            from rdpfl_sim.sweeps.plan import setting_name  # imports torch

            return setting_name(variable.name, run.run.scenario).label
    return name_from_path(variable.name).label


def _style(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(MUTED)
    axes.tick_params(labelcolor=INK, color=MUTED, labelsize=FONT_SIZE, length=2.5)
    axes.grid(color=FAINT, lw=0.6)
    axes.set_axisbelow(True)


def _key(index: int, label: str, is_joined: bool) -> Line2D:
    """Return a line with the colour, the marker and the dashes of a group, without points."""
    line = Line2D(
        [],
        [],
        label=label,
        color=SERIES_COLOURS[index % len(SERIES_COLOURS)],
        marker=MARKERS[index % len(MARKERS)],
        markersize=4,
        markeredgewidth=0.6,
        linewidth=1.4,
    )
    line.set_linestyle(
        LINE_STYLES[(index + index // len(SERIES_COLOURS)) % len(LINE_STYLES)] if is_joined else ""
    )
    return line


def _draw_series(axes: Axes, chart: Chart, series: Series, num_series: int) -> None:
    points, line = series.points, _key(series.index, series.label, chart.is_joined)
    x = [_position(chart, point, series.index, num_series) for point in points]
    y = [point.y.mean for point in points]
    colour = line.get_color()
    line.set_data(x, y)
    axes.add_line(line)
    if chart.is_joined:
        low, high = [point.y.low for point in points], [point.y.high for point in points]
        axes.fill_between(x, low, high, color=colour, alpha=min(0.18, 0.9 / num_series), lw=0)
        return
    x_errors = None
    if chart.x.kind is Kind.METRIC:
        x_errors = [(point.x_interval and point.x_interval.half_width) or 0.0 for point in points]
    y_errors = [point.y.half_width or 0.0 for point in points]
    axes.errorbar(x, y, y_errors, x_errors, fmt="none", capsize=2, elinewidth=0.9, ecolor=colour)


def _position(chart: Chart, point: Point, index: int, num_series: int) -> float:
    """Return the position on the x axis; the groups of a category stand side by side."""
    if not isinstance(point.x, str):
        return point.x
    step = 0.6 / max(num_series, 2)
    return chart.categories.index(point.x) + step * (index - (num_series - 1) / 2)


def _set_scales(axes: Axes, charts: list[Chart]) -> None:
    x_scale, y_scale = scales_of(charts)
    if y_scale == "log":
        axes.set_yscale("log", nonpositive="clip")
        axes.yaxis.set_minor_formatter(NullFormatter())
    points = [point for chart in charts for series in chart.series for point in series.points]
    numbers = sorted({point.x for point in points if not isinstance(point.x, str)})
    is_log = x_scale == "log"
    if is_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=8))
        axes.xaxis.set_major_formatter(LogFormatterSciNotation(labelOnlyBase=True))
        axes.xaxis.set_minor_formatter(NullFormatter())
    if (
        charts[0].is_joined
        and len(numbers) <= 6
        and _are_spread(list(map(log, numbers)) if is_log else numbers)
    ):
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
        axes.xaxis.set_minor_locator(NullLocator())


def _are_spread(numbers: list[float]) -> bool:
    """Return whether labels at these numbers do not overlap."""
    gaps = [after - before for before, after in pairwise(numbers)]
    return not gaps or min(gaps) >= 0.12 * (numbers[-1] - numbers[0])


def _label_categories(figure: Figure, axes: Axes, categories: list[str], width: float) -> None:
    """Label the categories; wrap long labels, and turn them if they would still overlap."""
    room = max(6, int(width * CHARACTERS_PER_INCH / len(categories)) - 1)  # characters
    texts = [fill(escape_control(category), room, break_long_words=False) for category in categories]
    overlap = any(len(line) > room for text in texts for line in text.split("\n"))
    if overlap:
        texts = [escape_control(category) for category in categories]
        figure_width, figure_height = figure.get_size_inches()
        longest = max(map(len, texts)) / CHARACTERS_PER_INCH
        figure.set_size_inches(figure_width, figure_height + longest * sin(radians(TILT)))
    labels = axes.set_xticks(range(len(categories)), texts)
    for tick in labels:
        for text in (tick.label1, tick.label2):
            text.set(parse_math=False, rotation=TILT if overlap else 0, ha="right" if overlap else "center")
            text.set_rotation_mode("anchor" if overlap else "default")
    axes.set_xlim(-0.5, len(categories) - 0.5)
    axes.grid(axis="x", visible=False)


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
