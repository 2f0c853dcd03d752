"""The page: tiles, tabs with cards in them, and everything that a browser needs, in one HTML file.

Safe to open: text from files is escaped, and a content security policy lets only the page's own scripts run and
no request leave it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import orjson

from rdpfl_sim.report.html.plot import Figure


@dataclass(frozen=True)
class Tile:
    """A number that people look for first."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Card:
    """One thing to look at: figures (one is shown at a time) or HTML, with a title and a sentence."""

    title: str
    text: str = ""
    views: Mapping[str, Figure] = field(default_factory=dict)
    html: str = ""
    """already escaped"""
    note: str = ""
    """what the card leaves out"""
    wide: bool = False


@dataclass(frozen=True)
class Tab:
    """Cards that belong together."""

    name: str
    cards: Sequence[Card]


@dataclass(frozen=True)
class Page:
    """All of it."""

    title: str
    status: str
    facts: str
    tiles: Sequence[Tile]
    warnings: Sequence[str]
    tabs: Sequence[Tab]


def render(page: Page) -> str:
    """The HTML file."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    figures: dict[str, Any] = {}
    sections = "".join(_section(tab, place, figures) for place, tab in enumerate(page.tabs))
    scripts = {"plotly": get_plotlyjs().replace("</script", "<\\/script"), "script": _text("page.js")}
    return Template(_text("page.html")).substitute(
        policy=_policy(scripts.values()),
        title=escape(page.title),
        status=escape(page.status),
        status_class=escape(page.status.split()[0]),
        facts=escape(page.facts),
        tiles="".join(map(_tile, page.tiles)),
        warnings=_warnings(page.warnings),
        tabs="".join(_tab(tab, place) for place, tab in enumerate(page.tabs)),
        sections=sections,
        figures=as_json(figures),
        style=_text("page.css"),
        **scripts,
    )


def as_json(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element."""
    return orjson.dumps(value).decode().replace("<", "\\u003c")


def table(head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "", numbers: bool = True) -> str:
    """An HTML table; a cell that is a number, or begins with one, stands to the right."""
    heads = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = "".join(
        "<tr>"
        + "".join(_cell(str(value), numbers and place > 0) for place, value in enumerate(row))
        + "</tr>"
        for row in rows
    )
    thead = f"<thead><tr>{heads}</tr></thead>" if head else ""
    return f'<div class="scroll"><table class="{kind}">{thead}<tbody>{lines}</tbody></table></div>'


def _cell(text: str, right: bool) -> str:
    is_number = right and text[:1] in "-+.0123456789−"
    return f'<td class="number">{escape(text)}</td>' if is_number else f"<td>{escape(text)}</td>"


def missing(title: str, why: str) -> Card:
    """A card that tells why there is nothing to see."""
    return Card(title, html=f'<p class="missing">{escape(why)}</p>')


def _text(name: str) -> str:
    return files("rdpfl_sim.report.html").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """Only these scripts run, and nothing is fetched from anywhere."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"


def _tile(tile: Tile) -> str:
    return (
        f'<div class="tile"><div class="label">{escape(tile.label)}</div>'
        f'<div class="value">{escape(tile.value)}</div><div class="detail">{escape(tile.detail)}</div></div>'
    )


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<aside class="warnings" aria-label="warnings"><ul>{items}</ul></aside>'


def _identity(tab: Tab) -> str:
    return "".join(c if c.isalnum() else "-" for c in tab.name.lower())


def _tab(tab: Tab, place: int) -> str:
    name = _identity(tab)
    selected = "true" if place == 0 else "false"
    return (
        f'<button role="tab" id="tab-{name}" aria-controls="panel-{name}" aria-selected="{selected}" '
        f'tabindex="{0 if place == 0 else -1}">{escape(tab.name)}</button>'
    )


def _section(tab: Tab, place: int, figures: dict[str, Any]) -> str:
    name = _identity(tab)
    cards = "".join(_card(card, f"{name}-{number}", figures) for number, card in enumerate(tab.cards))
    hidden = "" if place == 0 else " hidden"
    return (
        f'<section role="tabpanel" id="panel-{name}" aria-labelledby="tab-{name}" tabindex="-1"{hidden}>'
        f"{cards}</section>"
    )


def _card(card: Card, identity: str, figures: dict[str, Any]) -> str:
    body = card.html
    if card.views:
        for view, figure in card.views.items():
            figures[f"{identity}/{view}"] = {"data": figure.traces, "layout": figure.layout}
        first, figure = next(iter(card.views.items()))
        body += (
            f'<div class="plot" data-card="{escape(identity)}" data-view="{escape(first)}" '
            f'style="height:{max(each.height for each in card.views.values())}px"></div>'
        )
    return (
        f'<article class="card{" wide" if card.wide else ""}"><header><h2>{escape(card.title)}</h2>'
        f"{_choices(card)}</header>{_paragraph(card.text, 'text')}{body}{_paragraph(card.note, 'note')}</article>"
    )


def _choices(card: Card) -> str:
    if len(card.views) < 2:
        return ""
    buttons = "".join(
        f'<button aria-pressed="{"false" if place else "true"}" data-view="{escape(view)}">{escape(view)}</button>'
        for place, view in enumerate(card.views)
    )
    return f'<div class="choices" role="group">{buttons}</div>'


def _paragraph(text: str, kind: str) -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if text else ""
