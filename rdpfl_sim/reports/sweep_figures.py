"""The figures of a sweep's tables, one per table and metric, as PNG and PDF.

A table with a numeric axis is drawn as lines with 95 % bands, a table of one axis as points with intervals,
and a table of categories as a heat map.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from rdpfl_sim.frames import Sweep
from rdpfl_sim.frames.charts import Kind, Variable, heat_map_table, table_panels
from rdpfl_sim.records.metric_names import metric_name
from rdpfl_sim.reports.chart_figure import (
    COLUMN_INCHES,
    PAGE_INCHES,
    chart_figure,
    save_chart,
    variable_label,
)
from rdpfl_sim.reports.heat_map import heat_map_figure
from rdpfl_sim.sweeps.spec import TableLayout

MAX_CELLS = 2_000  # with more cells, the numbers would be illegible
MAX_NARROW = 6
"""Maximum number of groups or categories in a figure of one column."""


def draw_sweep_figures(sweep: Sweep) -> list[Path]:
    """Write `table-1.png`, `table-1.pdf` and so on into the sweep folder; return their paths.

    If a table has several metrics, the names of the files contain the names of the metrics.
    """
    paths: list[Path] = []
    for number, raw in enumerate(sweep.plan.get("tables") or [{}], start=1):
        layout = TableLayout.model_validate(raw)
        for name, metric in layout.metrics.items():
            figure = metric_figure(sweep, layout, name)
            if figure is not None:
                words = re.sub(r"\W+", "_", name).strip("_") or metric.replace(".", "_")
                suffix = f"-{words}" if len(layout.metrics) > 1 else ""
                paths += save_chart(figure, sweep.folder / f"table-{number}{suffix}")
    return paths


def metric_figure(sweep: Sweep, layout: TableLayout, name: str) -> Figure | None:
    """Draw one metric of a table, or return None if it has too few or too many values."""
    metric = layout.metrics[name]
    axes = [axis for axis in sweep.axes if axis not in layout.where]
    panels = table_panels(sweep, axes, layout.where, metric)
    if panels is not None:
        if not panels:
            return None
        [first, *others] = panels.values()
        is_narrow = not others and max(len(first.series), len(first.categories)) <= MAX_NARROW
        return chart_figure(sweep, panels, COLUMN_INCHES if is_narrow else PAGE_INCHES)
    table = heat_map_table(sweep, layout, name)
    if not 4 <= len(table.rows) * len(table.columns) <= MAX_CELLS or not table.cells:
        return None
    label = metric_name(metric).label
    return heat_map_figure(table, label, _axis_labels(sweep, table.corner), _axis_labels(sweep, table.across))


def _axis_labels(sweep: Sweep, axes: Sequence[str]) -> str:
    known = [axis for axis in axes if axis in sweep.axes]
    return " / ".join(variable_label(sweep, Variable(axis, Kind.AXIS)) for axis in known)
