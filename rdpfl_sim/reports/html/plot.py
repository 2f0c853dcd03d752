"""Interactive figures as plotly.js takes them: plain dictionaries; the page's theme fills colours in.

A colour such as "@honest" is a name in the palettes of page.js. Text from files must pass through `safe`.
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
    """What plotly draws, and how high it is."""

    traces: Sequence[Trace]
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 380


def safe(text: object) -> str:
    """Text from a file in which plotly, which knows some HTML, sees no tags."""
    return escape(str(text), quote=False)


def compact(values: Numbers, digits: int = DIGITS) -> list[float | int | None]:
    """Numbers with few digits, for a small page; what is not finite is left out.

    >>> compact([0.123456, 1234.567, 3.0, float("nan"), None])
    [0.1235, 1235, 3, None, None]
    """
    return [rounded(value, digits) for value in values]


def rounded(value: float | None, digits: int = DIGITS) -> float | int | None:
    """A number with so many significant digits, never fewer than its whole part has."""
    if value is None or not isfinite(value):
        return None
    places = digits - 1 - (floor(log10(abs(value))) if value else 0)
    short = round(float(value), max(0, places))
    return int(short) if abs(short) < 2**53 and short == int(short) else short


def times(values: Numbers) -> list[float | None]:
    """Simulated seconds to a millisecond: differences matter, whatever the size."""
    return [None if value is None or not isfinite(value) else round(float(value), 3) for value in values]


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": title}, **options}


def round_axis(rounds: Iterable[int]) -> dict[str, Any]:
    """The axis of rounds, which are whole numbers however few there are."""
    return axis("round", dtick=1 if max(rounds, default=0) <= 10 else None)


def line(x: Sequence[Any], y: Sequence[Any], name: str, colour: str, **options: Any) -> Trace:
    """A line."""
    style = {"color": colour, "width": options.pop("width", 2.5), "dash": options.pop("dash", "solid")}
    style["shape"] = options.pop("shape", "linear")
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": style, **options}


def band(
    x: Sequence[Any], low: Sequence[Any], high: Sequence[Any], name: str, colour: str, **options: Any
) -> list[Trace]:
    """The area between two lines, without hover."""
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


def spread(
    x: Sequence[Any], values: NDArray[np.float64], name: str, colour: str, few: bool, **options: Any
) -> list[Trace]:
    """The middle of many lines (lines, x), and the area that most of them are in."""
    with np.errstate(all="ignore"):
        low, high = np.nanpercentile(values, (0, 100) if few else (10, 90), axis=0)
        middle = np.nanmean(values, axis=0)
    around = "worst to best" if few else "10th to 90th percentile"
    shape = options.get("shape", "linear")
    return [
        *band(x, compact(low), compact(high), f"{name}, {around}", colour, shape=shape),
        line(x, compact(middle), f"{name}, mean", colour, **options),
    ]
