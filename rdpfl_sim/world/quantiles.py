"""Quantile functions: each turns a uniform draw in (0, 1) into a draw from another distribution.

A quantile function needs exactly one draw, so a stateless stream gives every link and every client its own
values, independent of everything else that is simulated.
"""

from __future__ import annotations

from math import exp, log
from statistics import NormalDist
from typing import Annotated, TypeAlias

from annotated_types import Ge, Le

LogSpread: TypeAlias = Annotated[float, Ge(0), Le(10)]  # larger values give times above exp(80) seconds

_normal_quantile = NormalDist().inv_cdf


def exponential(u: float, mean: float) -> float:
    """Return the quantile of the exponential distribution."""
    return -mean * log(1.0 - u)


def lognormal(u: float, median: float, sigma: float) -> float:
    """Return the quantile of the log-normal distribution: median exp(sigma z), z standard normal."""
    return median * exp(sigma * _normal_quantile(u))
