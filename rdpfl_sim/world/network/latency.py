"""Latency distributions: the random part of the time that a message spends on a link.

A latency is a quantile function: it turns a uniform draw in (0, 1) into seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import Doc, NonNegative, Positive
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.world import quantiles
from rdpfl_sim.world.quantiles import LogSpread

LATENCIES = Registry("latency", Facts)
latency = LATENCIES.register

Latency: TypeAlias = Callable[[float], float]

TailShape: TypeAlias = Annotated[
    float, Ge(0.1), Le(1000), Doc("tail index: smaller values give heavier tails; the mean is finite above 1")
]


@latency
def constant(u: float, *, seconds: Annotated[NonNegative, Doc("delay of a message")] = 0.1) -> float:
    """The same delay for every message."""
    return seconds


@latency
def uniform(
    u: float,
    *,
    low_s: Annotated[NonNegative, Doc("shortest delay")] = 0.05,
    high_s: Annotated[NonNegative, Doc("longest delay")] = 0.15,
) -> float:
    """A delay between low_s and high_s, uniformly distributed."""
    return low_s + (high_s - low_s) * u


@latency
def exponential(
    u: float,
    *,
    mean_s: Annotated[Positive, Doc("mean of the exponential delay")] = 0.1,
    minimum_s: Annotated[NonNegative, Doc("shortest delay")] = 0.0,
) -> float:
    """minimum_s plus an exponentially distributed delay with mean mean_s."""
    return minimum_s + quantiles.exponential(u, mean_s)


@latency
def lognormal(
    u: float,
    *,
    median_s: Annotated[Positive, Doc("median delay")] = 0.1,
    sigma: Annotated[LogSpread, Doc("spread: standard deviation of the logarithm")] = 0.5,
) -> float:
    """A log-normal delay: median_s exp(sigma z), z standard normal."""
    return quantiles.lognormal(u, median_s, sigma)


@latency
def pareto(
    u: float, *, minimum_s: Annotated[Positive, Doc("shortest delay")] = 0.05, shape: TailShape = 2.0
) -> float:
    """A heavy-tailed delay: P(delay > x) = (minimum_s / x)^shape."""
    return float(minimum_s * (1.0 - u) ** (-1.0 / shape))
