"""The formulas of docstrings, set for readers: `mu - z sigma` becomes μ − z σ, `g_i^2` g with its indices."""

from __future__ import annotations

import re
from html import escape

_NAMES = "alpha|beta|gamma|delta|epsilon|eta|kappa|lambda|mu|pi|rho|sigma|tau|Delta|Phi"
_LETTERS = dict(zip(_NAMES.split("|"), "αβγδεηκλμπρστΔΦ", strict=True))
_GREEK = re.compile(rf"\b({_NAMES})\b(?!_)")
_SIGNS = (
    ("d_hat", "d̂"),
    ("d_bar", "d̄"),
    ("w~", "w̃"),
    ("<-", "←"),
    ("->", "→"),
    ("<=", "≤"),
    (">=", "≥"),
    (" - ", " − "),
    (" * ", " · "),
)
_INNER_PRODUCT = re.compile(r"<([\w^~ +-]+, [^<>]+)>")
_INDEX = re.compile(r"\b(sum|min|max|argmin|argmax|mean|body|[A-Za-z]{1,2})_(?!s\b)([a-zT]{1,2}|\d)\b")
_POWER = re.compile(r"\^(?:\{([^}]+)\}|(-?\w+))")
_MINUS = re.compile(r"(^|[( ])-(?=\w)")


def typeset(text: str) -> str:
    """Text of a docstring as Markdown; what stands in backticks is left as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _formula(part) for part in parts)


def _formula(text: str) -> str:
    text = _INNER_PRODUCT.sub(r"⟨\1⟩", text)
    for plain, sign in _SIGNS:
        text = text.replace(plain, sign)
    text = escape(text, quote=False)
    text = _INDEX.sub(r"\1<sub>\2</sub>", text)
    text = _POWER.sub(lambda power: f"<sup>{power[1] or power[2]}</sup>", text)
    text = _GREEK.sub(lambda word: _LETTERS[word[1]], text)
    text = _MINUS.sub(r"\1−", text)
    return re.sub(r"([*_\[\]])", r"\\\1", text).replace("sum<sub>", "Σ<sub>")
