"""Durations, drawn through their quantile functions.

Each is a function of one uniform draw in (0, 1), so that a stateless stream gives every link and client
its own delays, whatever else is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from statistics import NormalDist
from typing import Annotated, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import Count, Doc, NonNegative, Positive
from rdpfl_sim.errors import OptionError

Latency: TypeAlias = Callable[[float], float]
Compute: TypeAlias = Callable[[float, int], float]

LogSpread: TypeAlias = Annotated[float, Ge(0), Le(10)]  # a delay beyond exp(80) is not a number of seconds
TailShape: TypeAlias = Annotated[float, Ge(0.1), Le(1000), Doc("smaller is heavier; a mean exists above 1")]

_normal_quantile = NormalDist().inv_cdf


def constant(u: float, *, seconds: NonNegative = 0.1) -> float:
    """Always the same delay."""
    return seconds


def uniform(u: float, *, low_s: NonNegative = 0.05, high_s: NonNegative = 0.15) -> float:
    """A delay between low_s and high_s."""
    return low_s + (high_s - low_s) * u


def exponential(u: float, *, mean_s: Positive = 0.1, minimum_s: NonNegative = 0.0) -> float:
    """minimum_s plus an exponential delay with mean mean_s."""
    return minimum_s - mean_s * log(1.0 - u)


def lognormal(u: float, *, median_s: Positive = 0.1, sigma: LogSpread = 0.5) -> float:
    """A log-normal delay: median_s exp(sigma z), z standard normal."""
    return median_s * exp(sigma * _normal_quantile(u))


def pareto(u: float, *, minimum_s: Positive = 0.05, shape: TailShape = 2.0) -> float:
    """A heavy-tailed delay: P(delay > x) = (minimum_s / x)^shape."""
    return float(minimum_s * (1.0 - u) ** (-1.0 / shape))


LATENCIES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "uniform": uniform,
    "exponential": exponential,
    "lognormal": lognormal,
    "pareto": pareto,
}


def equal(u: float, client: int, *, seconds: Positive = 1.0) -> float:
    """Every client takes the same time."""
    return seconds


def uniform_speed(u: float, client: int, *, low_s: Positive = 0.5, high_s: Positive = 1.5) -> float:
    """A client's time lies between low_s and high_s, drawn once for the whole run."""
    return uniform(u, low_s=low_s, high_s=high_s)


def lognormal_speed(u: float, client: int, *, median_s: Positive = 1.0, sigma: LogSpread = 0.5) -> float:
    """A client's time is log-normal, drawn once for the whole run: a few stragglers."""
    return lognormal(u, median_s=median_s, sigma=sigma)


def stragglers(
    u: float, client: int, *, seconds: Positive = 1.0, slowdown: Positive = 10.0, every: Count = 5
) -> float:
    """Client 0 and every further `every`-th client is `slowdown` times slower than the others."""
    return seconds * slowdown if client % every == 0 else seconds


def listed(
    u: float, client: int, *, seconds: Annotated[list[Positive], Doc("one entry per client")]
) -> float:
    """A client's time is its entry in a list."""
    if client >= len(seconds):
        raise OptionError("seconds", f"needs an entry for every client; there is none for client {client}")
    return seconds[client]


COMPUTE: dict[str, Callable[..., float]] = {
    "constant": equal,
    "uniform": uniform_speed,
    "lognormal": lognormal_speed,
    "stragglers": stragglers,
    "list": listed,
}
