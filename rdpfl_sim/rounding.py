"""Rounding of products that float64 cannot represent exactly."""

from __future__ import annotations

from math import ceil, floor

SLACK = 1e-9


def round_down(number: float) -> int:
    """Return the largest whole number that is not above `number`, up to rounding errors.

    >>> 0.29 * 100, round_down(0.29 * 100)
    (28.999999999999996, 29)
    """
    return floor(number + SLACK)


def round_up(number: float) -> int:
    """Return the smallest whole number that is not below `number`, up to rounding errors.

    >>> 0.07 * 100, round_up(0.07 * 100)
    (7.000000000000001, 7)
    """
    return ceil(number - SLACK)
