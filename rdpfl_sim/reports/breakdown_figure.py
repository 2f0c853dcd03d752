"""The difference to local training by value of the varied option, and where it becomes negative."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rdpfl_sim.reports.breakdown import breakdown_point, metric_title
from rdpfl_sim.reports.figure_style import (
    BYZANTINE,
    DASHES,
    HONEST,
    INK,
    LEGEND,
    new_figure,
    save,
    style_axes,
)

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.breakdown.bisection import Breakdown


def draw_breakdown(breakdown: Breakdown, path: Path) -> Path:
    """Write the figure and return its path."""
    return save(breakdown_figure(breakdown), path)


def breakdown_figure(breakdown: Breakdown) -> Figure:
    """Draw one line per seed, local training at zero, and the interval of the breakdown point."""
    spec = breakdown.spec
    figure = new_figure(spec.base.name, f"below local training: {breakdown_point(breakdown)}", 9, 5.2)
    axes = figure.subplots()
    style_axes(axes)
    axes.set_xlabel(spec.path, fontsize=12, color=INK)
    axes.set_ylabel(f"{metric_title(spec)},\nminus local training", fontsize=12, color=INK)
    axes.axhline(-spec.margin, color=INK, lw=1.2)
    threshold = "local training minus the margin" if spec.margin else "local training"
    keys: list[Line2D | Patch] = [*_draw_seeds(axes, breakdown), *_draw_breakdown_point(axes, breakdown)]
    keys.append(Line2D([], [], color=INK, lw=1.2, label=threshold))
    figure.legend(handles=keys, ncols=4, fontsize=10, **LEGEND)
    return figure


def _draw_seeds(axes: Axes, breakdown: Breakdown) -> list[Line2D]:
    for crossing in breakdown.crossings:
        own = [point for point in breakdown.points if point.seed == crossing.seed]
        x, y = [point.value for point in own], [point.difference for point in own]
        axes.plot(x, y, color=HONEST, lw=1, alpha=0.5, marker="o", ms=4, mec="white", mew=0.5)
    return [Line2D([], [], color=HONEST, lw=1, alpha=0.7, marker="o", ms=4, label="one seed")]


def _draw_breakdown_point(axes: Axes, breakdown: Breakdown) -> list[Line2D | Patch]:
    """Draw the mean and its interval, or one line per seed if some seeds have none within the range."""
    estimate = breakdown.estimate
    if estimate is None:
        places = [c.below for c in breakdown.crossings if c.below is not None and c.holds is not None]
        for place in places:
            axes.axvline(breakdown.spec.values[place], color=BYZANTINE, lw=1, ls=DASHES, alpha=0.7)
        label = "breakdown point of one seed (others are outside the range)"
        return [Line2D([], [], color=BYZANTINE, lw=1, ls=DASHES, label=label)] if places else []
    axes.axvline(estimate.mean, color=BYZANTINE, lw=2)
    keys: list[Line2D | Patch] = [Line2D([], [], color=BYZANTINE, lw=2, label="mean breakdown point")]
    if estimate.half_width:
        axes.axvspan(estimate.low, estimate.high, color=BYZANTINE, alpha=0.15, lw=0)
        keys.append(Patch(color=BYZANTINE, alpha=0.15, lw=0, label="95 % interval over seeds"))
    return keys
