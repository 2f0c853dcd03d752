"""Interactive figures in the form that plotly.js expects: plain dictionaries without colours.

A colour such as "@honest" is a name in the palettes of page.js. Text from files must pass through
`escape_markup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import floor, isfinite, log10
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Trace: TypeAlias = dict[str, Any]
Numbers: TypeAlias = Iterable[float | None] | NDArray[Any]

DIGITS = 4
HONEST, BYZANTINE, MUTED, INK = "@honest", "@byzantine", "@muted", "@ink"


@dataclass(frozen=True)
class Figure:
    """Traces and layout of a plotly figure, and its height in pixels."""

    traces: Sequence[Trace]
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 380


def escape_markup(text: object) -> str:
    """Return text in which plotly, which interprets some HTML tags, finds no tags."""
    return escape(str(text), quote=False)


def compact(values: Numbers, digits: int = DIGITS) -> list[float | int | None]:
    """Round numbers to keep the page small; values that are not finite become None.

    >>> compact([0.123456, 1234.567, 3.0, float("nan"), None])
    [0.1235, 1235, 3, None, None]
    """
    return [rounded(value, digits) for value in values]


def rounded(value: float | None, digits: int = DIGITS) -> float | int | None:
    """Round to significant digits, but keep all digits before the decimal point."""
    if value is None or not isfinite(value):
        return None
    places = digits - 1 - (floor(log10(abs(value))) if value else 0)
    short = round(float(value), max(0, places))
    return int(short) if abs(short) < 2**53 and short == int(short) else short


def round_times(values: Numbers) -> list[float | None]:
    """Round simulated seconds to milliseconds, so that short intervals stay visible late in a run."""
    return [None if value is None or not isfinite(value) else round(float(value), 3) for value in values]


def axis(title: str, **options: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, **options}


def round_axis(rounds: Iterable[int]) -> dict[str, Any]:
    """Return an axis of rounds, whose ticks are whole numbers even if there are few rounds."""
    return axis("round", dtick=1 if max(rounds, default=0) <= 10 else None)


def line(x: Sequence[Any], y: Sequence[Any], name: str, colour: str, **options: Any) -> Trace:
    """Return a line; `width`, `dash` and `shape` are options of its style."""
    style = {"color": colour, "width": options.pop("width", 2.5), "dash": options.pop("dash", "solid")}
    style["shape"] = options.pop("shape", "linear")
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": style, **options}


def band(
    x: Sequence[Any], low: Sequence[Any], high: Sequence[Any], name: str, colour: str, **options: Any
) -> list[Trace]:
    """Return the area between two lines, without hover text."""
    shape = options.pop("shape", "linear")
    edge = {"color": colour, "width": 0, "shape": shape}
    common = {"type": "scatter", "mode": "lines", "x": x, "line": edge, "hoverinfo": "skip", **options}
    return [
        {**common, "y": low, "showlegend": False, "legendgroup": name},
        {
            **common,
            "y": high,
            "name": name,
            "legendgroup": name,
            "fill": "tonexty",
            "fillcolor": f"{colour}-band",
        },
    ]


def mean_and_range(
    x: Sequence[Any], values: NDArray[np.float64], name: str, colour: str, full_range: bool, **options: Any
) -> list[Trace]:
    """Return the mean of many lines (lines, x), and their full range or the middle 80 % of it."""
    with np.errstate(all="ignore"):
        low, high = np.nanpercentile(values, (0, 100) if full_range else (10, 90), axis=0)
        mean = np.nanmean(values, axis=0)
    range_name = "worst to best" if full_range else "10th to 90th percentile"
    shape = options.get("shape", "linear")
    return [
        *band(x, compact(low), compact(high), f"{name}, {range_name}", colour, shape=shape),
        line(x, compact(mean), f"{name}, mean", colour, **options),
    ]
