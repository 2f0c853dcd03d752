"""The parts of a page and its rendering as one self-contained HTML file.

The file is safe to open: templates escape all text, and a content security policy allows only the page's own
scripts and no requests.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import ClassVar, Protocol

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined

from rdpfl_sim.reports.html.plot import Plot


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
