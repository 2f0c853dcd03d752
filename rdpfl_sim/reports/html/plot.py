"""Interactive figures in the form that plotly.js expects: plain dictionaries without colours.

A colour such as "@honest" is a name in the palettes of page.js. Text from files must pass through
`escape_markup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from math import floor, isfinite, log10
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Trace: TypeAlias = Mapping[str, object]
Points: TypeAlias = Sequence[object]
Numbers: TypeAlias = Iterable[float | None]

DIGITS = 4
HONEST, BYZANTINE, INK = "@honest", "@byzantine", "@ink"


@dataclass(frozen=True)
class Plot:
    """Traces and layout of a plotly figure, and its height in pixels."""

    traces: Sequence[Trace]
    layout: Mapping[str, object] = field(default_factory=dict)
    height: int = 380


def escape_markup(text: object) -> str:
    """Escape text for plotly, which interprets some HTML tags."""
    return escape(str(text), quote=False)


def compact(values: Numbers, digits: int = DIGITS) -> list[float | int | None]:
    """Round numbers to keep the page small; values that are not finite become None.

    >>> compact([0.123456, 1234.567, 3.0, float("nan"), None])
    [0.1235, 1235, 3, None, None]
    """
    return [_rounded(value, digits) for value in values]


def _rounded(value: float | None, digits: int) -> float | int | None:
    """Round to significant digits, but keep all digits before the decimal point."""
    if value is None or not isfinite(value):
        return None
    places = digits - 1 - (floor(log10(abs(value))) if value else 0)
    short = round(float(value), max(0, places))
    return int(short) if abs(short) < 2**53 and short == int(short) else short


def round_times(values: Numbers) -> list[float | None]:
    """Round simulated seconds to milliseconds, so that short intervals stay visible late in a run."""
    return [None if value is None or not isfinite(value) else round(float(value), 3) for value in values]


def segments(starts: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one coordinate of many separate segments, as one line with gaps.

    >>> segments(np.array([1.0, 3.0]), np.array([2.0, 4.0]))
    array([ 1.,  2., nan,  3.,  4., nan])
    """
    return np.stack([starts, ends, np.full(len(starts), np.nan)], axis=1).ravel()


def axis(title: str, **options: object) -> dict[str, object]:
    """Return an axis with a title."""
    return {"title": {"text": title}, **options}


def round_axis(last_round: int) -> dict[str, object]:
    """Return an axis of all rounds up to the last one of the run; its ticks are whole numbers."""
    return axis("round", dtick=1 if last_round <= 10 else None, range=[-0.5, last_round + 0.5])


def line(
    x: Points,
    y: Points,
    name: str,
    colour: str,
    *,
    width: float = 2.5,
    dash: str = "solid",
    shape: str = "linear",
    **options: object,
) -> Trace:
    """Return a line."""
    style = {"color": colour, "width": width, "dash": dash, "shape": shape}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": style, **options}


def dots(x: Points, y: Points, name: str, marker: Mapping[str, object], **options: object) -> Trace:
    """Return one marker per point."""
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": name, "marker": marker, **options}


def bars(x: Points, y: Points, name: str, colour: str, **options: object) -> Trace:
    """Return one bar per point."""
    return {"type": "bar", "x": x, "y": y, "name": name, "marker": {"color": colour}, **options}


def band(
    x: Points,
    low: Points,
    high: Points,
    name: str,
    colour: str,
    *,
    shape: str = "linear",
    legend: bool = True,
) -> list[Trace]:
    """Return the area between two lines, without hover text."""
    edge = partial(line, width=0, shape=shape, hoverinfo="skip", legendgroup=name)
    return [
        edge(x, low, name, colour, showlegend=False),
        edge(x, high, name, colour, showlegend=legend, fill="tonexty", fillcolor=f"{colour}-band"),
    ]
