"""The choice between a linear and a logarithmic scale."""

from __future__ import annotations

from collections.abc import Iterable

DECADES = 100.0
"""Ratio of the largest to the smallest value from which a scale is logarithmic."""


def spans_decades(values: Iterable[float | None]) -> bool:
    """Return whether all values are positive and the largest is at least 100 times the smallest.

    >>> spans_decades([0.01, 0.1, 1.0]), spans_decades([0.0, 0.01, 1.0]), spans_decades([0.1, 5.0])
    (True, False, False)
    """
    known = [value for value in values if value is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) >= DECADES
