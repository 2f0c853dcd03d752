"""The style of the figures in the notebooks: palette, grid and font size."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib_inline.backend_inline import set_matplotlib_formats

from rdpfl_sim.intervals import MeanInterval

# The palette of Okabe and Ito, distinct in common forms of colour blindness. (The eighth colour is black.)
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
INK, MUTED, FAINT = "#222222", "#6B6B6B", "#E4E4E4"
HONEST, BYZANTINE = BLUE, VERMILION
PALETTE = [BLUE, VERMILION, GREEN, ORANGE, PINK, SKY, MUTED]
MARKERS = "osD^vPX"
WIDTH = 8.0
"""Inches: the width of a notebook's column on the web."""


def use() -> None:
    """Apply the style to all figures and tables that follow."""
    set_matplotlib_formats("png", dpi=100, pil_kwargs={"optimize": True})
    mpl.rcParams.update(
        {
            "axes.axisbelow": True,
            "axes.edgecolor": MUTED,
            "axes.grid": True,
            "axes.labelcolor": INK,
            "axes.prop_cycle": mpl.cycler(color=PALETTE, marker=list(MARKERS)),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlelocation": "left",
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "figure.constrained_layout.use": True,
            "figure.dpi": 100,
            "font.size": 9,
            "grid.color": FAINT,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "lines.markersize": 4.5,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
        }
    )
    pl.Config(
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        float_precision=3,
        tbl_rows=40,
        tbl_cols=20,
    )


def panels(columns: int = 1, rows: int = 1, height: float = 3.0, **options: Any) -> tuple[Figure, Any]:
    """Return a figure as wide as the page and its panels, each `height` inches high."""
    return plt.subplots(rows, columns, figsize=(WIDTH, height * rows), **options)


def band(axes: Axes, x: Any, low: Any, high: Any, color: str) -> None:
    """Shade a range around a curve."""
    axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)


def legend_below(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Draw one legend for all panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def means(estimates: Sequence[MeanInterval]) -> np.ndarray:
    """Return the means of estimates over seeds."""
    return np.array([estimate.mean for estimate in estimates])


def half_widths(estimates: Sequence[MeanInterval]) -> np.ndarray:
    """Return half the width of their 95 % intervals; nan where there is only one seed."""
    return np.array([nan if e.half_width is None else e.half_width for e in estimates])


def written(estimate: MeanInterval) -> str:
    """Format an estimate as a signed number with its 95 % interval."""
    return f"{estimate.mean:+.3f}" + ("" if estimate.half_width is None else f" ± {estimate.half_width:.3f}")


def heat_map(
    axes: Axes, values: np.ndarray, rows: Sequence[str], columns: Sequence[str], limit: float
) -> AxesImage:
    """Draw a table coloured by its values: orange below zero, purple above, up to a limit."""
    image = axes.imshow(values, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for row, column in np.ndindex(values.shape):
        value = values[row, column]
        ink = "white" if abs(value) > 0.7 * limit else INK
        axes.text(column, row, f"{value:+.3f}", ha="center", va="center", color=ink, fontsize=8.5)
    return image
