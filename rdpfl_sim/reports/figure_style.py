"""Colours, axes, titles and file output shared by all figures.

Figures are built without pyplot, so drawing has no global state and needs no display.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from textwrap import wrap
from typing import Literal, TypeAlias

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from rdpfl_sim.files import open_atomic

Colour: TypeAlias = tuple[float, float, float, float]
"""Red, green, blue and opacity, from 0 to 1."""

# Blue and vermilion from Okabe and Ito's palette, distinct in all common forms of colour blindness.
HONEST, BYZANTINE = "#0072B2", "#D55E00"
INK, MUTED, FAINT = "#222222", "#6B6B6B", "#E4E4E4"
DASHES = (0, (4, 2))
LINE_STYLES: Sequence[Literal["-", "--", "-.", ":"]] = ("-", "--", "-.", ":")
"""Styles of successive lines: a line remains visible below one that coincides with it."""
SERIES_COLOURS = (HONEST, BYZANTINE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK, "#8A6D1F")
"""Colours of series, most of them from the same palette; each series also has a marker of its own."""
MARKERS = "osD^vPX*<>hpd8H."
FONT_SIZE = 8
"""Size of the text in figures for papers, in points."""
CHARACTERS_PER_INCH = 15
"""Characters of this size on one inch, approximately."""
LAYOUT_PAD = 3 / 72  # default padding of the constrained layout, in inches


def new_figure(name: str, description: str, width: float, height: float) -> Figure:
    """Return an empty figure whose title is a name in bold and up to three lines of description."""
    figure = Figure(figsize=(width, height), layout="constrained")
    lines = "\n".join(wrap(description, int(11 * width), max_lines=3, placeholder=" ..."))
    # The description starts on the second line, below the name; the layout reserves space for the suptitle.
    below = figure.suptitle(f"\n{lines}", color=MUTED)
    title = _shorten(name, int(8 * width))
    above = figure.text(0, 1 - LAYOUT_PAD / height, f"{title}\n", color=INK, fontweight="bold")
    for text in (below, above):
        text.set(x=0.012, ha="left", va="top", fontsize=12, parse_math=False)
    return figure


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def style_axes(axes: Axes) -> None:
    """Draw horizontal grid lines only, and labels in grey."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(labelcolor=MUTED, labelsize=11, length=0, labelleft=True)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)


def add_legend(figure: Figure, keys: Sequence[Artist], ncols: int, fontsize: int) -> None:
    """Add a legend below the axes."""
    figure.legend(
        handles=keys,
        loc="outside lower center",
        ncols=ncols,
        fontsize=fontsize,
        frameon=False,
        labelcolor=INK,
    )


def contrast(first: str | Colour, second: str | Colour) -> float:
    """Return the contrast ratio of two colours (WCAG 2): 1 for equal colours, 21 for black and white.

    >>> round(contrast("black", "white"), 1), round(contrast("#777777", "white"), 1)
    (21.0, 4.5)
    """
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str | Colour) -> float:
    parts = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def text_colour(ground: str | Colour) -> str:
    """Return black or white, whichever is easier to read on this colour; the contrast is at least 4.5."""
    return "black" if contrast("black", ground) >= contrast("white", ground) else "white"


def fit_lines(text: str, inches: float) -> str:
    """Return text in lines of similar length that fit into this space, if its words do.

    >>> print(fit_lines("Mean personal accuracy of honest clients", 2.0))
    Mean personal accuracy
    of honest clients
    """
    room = max(1, int(CHARACTERS_PER_INCH * inches))
    num_lines = max(1, len(wrap(text, room, break_long_words=False)))
    options = (
        wrap(text, width, break_long_words=False) for width in range(ceil(len(text) / num_lines) or 1, room)
    )
    return "\n".join(next((lines for lines in options if len(lines) <= num_lines), wrap(text, room)))


def save(figure: Figure, path: Path, dpi: int = 100) -> Path:
    """Write a figure atomically, in the format of the file's extension, and return its path.

    PDF files embed their fonts as TrueType (type 42) and state no date, so equal figures are equal files.
    """
    kind = path.suffix.removeprefix(".")
    metadata = {"CreationDate": None} if kind == "pdf" else None
    with open_atomic(path) as file, mpl.rc_context({"pdf.fonttype": 42}):
        figure.savefig(file, dpi=dpi, format=kind, metadata=metadata)
    return path
