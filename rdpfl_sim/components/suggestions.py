"""Suggestions for misspelt names: "did you mean ...?"."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(given: object, allowed: Iterable[str]) -> str:
    """Return the end of a message: the nearest match to the given value, if any, and all choices."""
    choices = list(allowed)
    near = get_close_matches(str(given), choices, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint}; allowed: {', '.join(choices)}"
