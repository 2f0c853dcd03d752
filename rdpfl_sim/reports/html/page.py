"""The parts of a page and its rendering as one self-contained HTML file.

The file is safe to open: templates escape all text, and a content security policy allows only the page's own
scripts and no requests.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from html import escape
from importlib.resources import files
from math import floor, isfinite, log10
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray


class Content(Protocol):
    """The part of a card that is not a figure. Templates access it as `card.content`."""

    template: ClassVar[str]


class HtmlTable:
    """A table. Columns in which every cell starts like a number are right-aligned."""

    template: ClassVar[str] = "table.html"

    def __init__(self, head: Sequence[str], rows: Iterable[Sequence[object]], style: str = "") -> None:
        self.head = head
        self.rows = [[str(value) for value in row] for row in rows]
        self.style = style
        columns = zip(*self.rows, strict=True) if self.rows else ((),) * len(head)
        self.is_numeric = [
            bool(column) and all(text[:1] in "-+.0123456789" for text in column) for column in columns
        ]


@dataclass(frozen=True)
class Tile:
    """A key figure at the top of the page."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Card:
    """A box with a title, a description, and figures (one visible at a time) or other content.

    Two cards share a row. A wide card fills a row, and so does a single card at the end.
    """

    title: str
    text: str = ""
    views: Mapping[str, Plot] = field(default_factory=dict)
    content: Content | None = None
    missing: str = ""
    """The reason for an empty card."""
    note: str = ""
    """A note on omitted items."""
    wide: bool = False


@dataclass(frozen=True)
class Tab:
    """A named group of cards, shown together."""

    name: str
    cards: Sequence[Card]

    @property
    def slug(self) -> str:
        """The name for use in ids and URLs."""
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True)
class Page:
    """The content of a report."""

    title: str
    status: str
    facts: str
    tiles: Sequence[Tile]
    warnings: Sequence[str]
    tabs: Sequence[Tab]


def render(page: Page) -> str:
    """Return the page as an HTML file that contains all its scripts, styles and data."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    scripts = {"theme": _read("theme.js"), "plotly": get_plotlyjs(), "page": _read("page.js")}
    assert not any("</script" in script for script in scripts.values()), "a script would end too early"
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            policy=_policy(scripts.values()),
            figures=_figures(page),
            style=_read("page.css"),
            scripts=scripts,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rdpfl_sim.reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_function"] = lambda value, **_: orjson.dumps(value).decode()
    return environment


def _figures(page: Page) -> dict[str, object]:
    """Return the figures of all cards, by the keys that page.js uses."""
    return {
        f"{tab.slug}-{number}/{view}": {"data": figure.traces, "layout": figure.layout}
        for tab in page.tabs
        for number, card in enumerate(tab.cards)
        for view, figure in card.views.items()
    }


def _read(name: str) -> str:
    return files("rdpfl_sim.reports.html").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """Return a policy that allows only these scripts and no requests."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"


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


def chart(traces: Sequence[Trace], x: object, y: object, height: int = 400, **layout: object) -> Plot:
    """Return a figure with these axes."""
    return Plot(traces, {"xaxis": x, "yaxis": y, **layout}, height)


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
