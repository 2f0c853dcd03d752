"""The page: tiles, tabs with cards in them, and everything that a browser needs, in one HTML file.

Safe to open: text from files is escaped, and a content security policy lets only the page's own scripts run
and no request leave it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import orjson

from rdpfl_sim.reports.html.plot import Figure


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
    scripts = {"early": _text("page.early.js"), "plotly": get_plotlyjs(), "script": _text("page.js")}
    assert not any("</script" in script for script in scripts.values()), "a script would end too early"
    return Template(_text("page.html")).substitute(
        policy=_policy(scripts.values()),
        title=escape(page.title),
        status=escape(page.status),
        status_class=escape(page.status.partition(" ")[0]),
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


def table(head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """An HTML table; a column in which every text begins like a number stands to the right."""
    texts = [[str(value) for value in row] for row in rows]
    right = [all(text[:1] in "-+.0123456789" for text in column) for column in zip(*texts, strict=True)]
    lines = "".join(f"<tr>{_cells('td', row, right)}</tr>" for row in texts)
    thead = f"<thead><tr>{_cells('th', head, right)}</tr></thead>" if head else ""
    return f'<div class="scroll"><table class="{kind}">{thead}<tbody>{lines}</tbody></table></div>'


def _cells(tag: str, texts: Sequence[str], right: Sequence[bool]) -> str:
    return "".join(
        f'<{tag} class="{"number" if is_right else ""}">{escape(text)}</{tag}>'
        for text, is_right in zip(texts, right or [False] * len(texts), strict=True)
    )


def missing(title: str, why: str) -> Card:
    """A card that tells why there is nothing to see."""
    return Card(title, html=f'<p class="missing">{escape(why)}</p>')


def _text(name: str) -> str:
    return files("rdpfl_sim.reports.html").joinpath(name).read_text(encoding="utf-8")


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
    cards = "".join(
        _card(card, f"{name}-{number}", figures) for number, card in enumerate(_without_gaps(tab.cards))
    )
    hidden = "" if place == 0 else " hidden"
    return (
        f'<section role="tabpanel" id="panel-{name}" aria-labelledby="tab-{name}" tabindex="-1"{hidden}>'
        f"{cards}</section>"
    )


def _without_gaps(cards: Sequence[Card]) -> list[Card]:
    """The cards, two in a row; one that would be alone in its row fills it."""
    found: list[Card] = []
    left: int | None = None
    """where a card waits for its neighbour"""
    for card in cards:
        if card.wide and left is not None:
            found[left] = replace(found[left], wide=True)
        left = None if card.wide or left is not None else len(found)
        found.append(card)
    if left is not None:
        found[left] = replace(found[left], wide=True)
    return found


def _card(card: Card, identity: str, figures: dict[str, Any]) -> str:
    kind = "card wide" if card.wide else "card"
    body = card.html
    if card.views:
        for view, figure in card.views.items():
            figures[f"{identity}/{view}"] = {"data": figure.traces, "layout": figure.layout}
        height = max(figure.height for figure in card.views.values())
        first = escape(next(iter(card.views)))
        body += (
            f'<div class="plot" data-card="{identity}" data-view="{first}" style="height:{height}px"></div>'
        )
    return (
        f'<article class="{kind}"><header><h2>{escape(card.title)}</h2>{_choices(card)}</header>'
        f"{_paragraph(card.text, 'text')}{body}{_paragraph(card.note, 'note')}</article>"
    )


def _choices(card: Card) -> str:
    if len(card.views) < 2:
        return ""
    pressed = ["true", *["false"] * len(card.views)]
    buttons = "".join(
        f'<button aria-pressed="{state}" data-view="{escape(view)}">{escape(view)}</button>'
        for view, state in zip(card.views, pressed, strict=False)
    )
    return f'<div class="choices" role="group">{buttons}</div>'


def _paragraph(text: str, kind: str) -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if text else ""
