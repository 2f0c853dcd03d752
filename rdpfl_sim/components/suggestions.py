"""Suggestions for misspelt names and for values with units: "did you mean ...?"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


def suggest(given: object, allowed: Iterable[str]) -> str:
    """Return the end of a message: the nearest match to the given value, if any, and all choices."""
    choices = list(allowed)
    near = get_close_matches(str(given), choices, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint}; allowed: {', '.join(choices)}"


SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_WITH_UNIT = re.compile(rf"([0-9]*\.?[0-9]+) *({'|'.join(SECONDS)}|%)")
_KEY_WITH_UNIT = re.compile(rf"(?:(.+)_)?({'|'.join(SECONDS)}|percent)")


def without_unit(key: str, text: str) -> str | None:
    """Return the number to write for a value with a unit, or None if the key does not have this unit.

    >>> without_unit("mean_s", "200ms"), without_unit("fraction", "20 %"), without_unit("fraction", "20 s")
    ('0.2', '0.2', None)
    """
    found = _WITH_UNIT.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = float(found[1]), found[2]
    if unit == "%":
        return _number(number / 100)
    is_time = key == "seconds" or (key.endswith("_s") and not key.endswith("_per_s"))
    return _number(number * SECONDS[unit]) if is_time else None


def with_known_unit(key: str, value: object, allowed: Iterable[str]) -> tuple[str, str] | None:
    """Return the allowed key, and the number to write, for a key with another unit, or None.

    >>> with_known_unit("mean_ms", 200, ["name", "mean_s"])
    ('mean_s', '0.2')
    """
    found = _KEY_WITH_UNIT.fullmatch(key)
    if found is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    stem, unit = found.groups()
    unit, names = ("%", (stem,)) if unit == "percent" else (unit, (f"{stem}_s", "seconds"))
    known = next((name for name in names if name in allowed), None)
    number = None if known is None else without_unit(known, f"{value}{unit}")
    return None if known is None or number is None else (known, number)


def _number(value: float) -> str:
    """Return a number as text, without the rounding errors of its conversion."""
    return f"{value:.12g}"
