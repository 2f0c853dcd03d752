"""Learning curves of a run: personal accuracy by round and by simulated time."""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from rdpfl_sim.reports.accuracy_curves import Curves, latest_values
from rdpfl_sim.reports.figure_style import (
    BYZANTINE,
    DASHES,
    HONEST,
    INK,
    LEGEND,
    MUTED,
    new_figure,
    style_axes,
)

MAX_LINES = 12  # with more clients, one line per client is clutter


def curves_figure(honest: Curves, byzantine: Curves, name: str, description: str) -> Figure:
    """Draw the mean and the range of honest clients, and Byzantine clients for comparison."""
    figure = new_figure(name, description, 12, 4.8)
    panels = figure.subplots(1, 2, sharey=True)
    per_client = len(honest) + len(byzantine) <= MAX_LINES
    for axes, by, label in zip(panels, ("round", "time_s"), ("round", "simulated time (s)"), strict=True):
        style_axes(axes)
        axes.set_xlabel(label, fontsize=12, color=INK)
        if by == "round":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if byzantine:
            _draw_byzantine(axes, byzantine, by, per_client)
        if honest:
            _draw_honest(axes, honest, by, per_client)
        if not honest and not byzantine:
            axes.set(xticks=[], yticks=[])
            axes.text(0.5, 0.5, "no evaluations", transform=axes.transAxes, ha="center", color=MUTED)
    panels[0].set_ylabel("personal accuracy", fontsize=12, color=INK)
    panels[0].set_ylim(top=min(panels[0].get_ylim()[1], 1.005))
    figure.legend(handles=_legend(bool(honest), bool(byzantine), per_client), ncols=4, fontsize=11, **LEGEND)
    return figure


def _draw_honest(axes: Axes, curves: Curves, by: str, per_client: bool) -> None:
    x, values = latest_values(curves, by)
    low, high = np.nanpercentile(values, [0, 100] if per_client else [10, 90], axis=0)
    axes.fill_between(x, low, high, step="post" if by == "time_s" else None, color=HONEST, alpha=0.13, lw=0)
    for curve in curves.values() if per_client else ():
        axes.plot(getattr(curve, by), curve.accuracy, ds=_draw_style(by), color=HONEST, lw=0.8, alpha=0.45)
    mean = np.nanmean(values, axis=0)
    axes.plot(x, mean, ds=_draw_style(by), color=HONEST, lw=2.8)
    axes.annotate(
        f"{mean[-1]:.3f}",
        (x[-1], mean[-1]),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        color=HONEST,
        fontsize=12,
        fontweight="bold",
    )


def _draw_byzantine(axes: Axes, curves: Curves, by: str, per_client: bool) -> None:
    if per_client:
        lines = [(getattr(curve, by), curve.accuracy) for curve in curves.values()]
    else:
        x, values = latest_values(curves, by)
        lines = [(x, np.nanmean(values, axis=0))]
    for x, accuracy in lines:
        axes.plot(x, accuracy, ds=_draw_style(by), color=BYZANTINE, lw=1.2 if per_client else 2.0, ls=DASHES)


def _draw_style(by: str) -> Literal["steps-post", "default"]:
    """Return steps for simulated time, in which a value holds until the next evaluation."""
    return "steps-post" if by == "time_s" else "default"


def _legend(honest: bool, byzantine: bool, per_client: bool) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = []
    if honest:
        band = "worst to best honest client" if per_client else "10th to 90th percentile of honest clients"
        keys += [Line2D([], [], color=HONEST, lw=2.8, label="honest mean")]
        keys += [Line2D([], [], color=HONEST, lw=0.8, alpha=0.6, label="honest client")] if per_client else []
        keys += [Patch(color=HONEST, alpha=0.13, lw=0, label=band)]
    if byzantine:
        label = "Byzantine client's own model" if per_client else "mean of Byzantine clients' own models"
        keys += [Line2D([], [], color=BYZANTINE, lw=1.6, ls=DASHES, label=label)]
    return keys
