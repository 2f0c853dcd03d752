"""Latency distributions: the random part of the time that a message spends on a link.

A latency is a quantile function: it turns a uniform draw in (0, 1) into seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import hypot
from typing import Annotated, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim import randomness
from rdpfl_sim.components.options import Doc, NonNegative, NonNegativeInt, Positive, in_order
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams, exponential_quantile, lognormal_quantile
from rdpfl_sim.world.compute_time import LogSpread

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


@latency(check=in_order("low_s", "high_s"))
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
    return minimum_s + exponential_quantile(u, mean_s)


@latency
def lognormal(
    u: float,
    *,
    median_s: Annotated[Positive, Doc("median delay")] = 0.1,
    sigma: Annotated[LogSpread, Doc("spread: standard deviation of the logarithm")] = 0.5,
) -> float:
    """A log-normal delay: median_s exp(sigma z), z standard normal."""
    return lognormal_quantile(u, median_s, sigma)


@latency
def pareto(
    u: float, *, minimum_s: Annotated[Positive, Doc("shortest delay")] = 0.05, shape: TailShape = 2.0
) -> float:
    """A heavy-tailed delay: P(delay > x) = (minimum_s / x)^shape."""
    return float(minimum_s * (1.0 - u) ** (-1.0 / shape))


GEOGRAPHIES = Registry("geography", Facts)
geography = GEOGRAPHIES.register

Propagation: TypeAlias = Callable[[int, int], float]
"""The propagation time in seconds, from sender and recipient."""


@geography(name="none")
def nowhere(num_clients: int, streams: Streams) -> Propagation:
    """All clients are in the same place: no propagation time."""
    return lambda sender, recipient: 0.0


@geography
def plane(
    num_clients: int,
    streams: Streams,
    *,
    side_s: Annotated[NonNegative, Doc("propagation time along one side of the square")] = 0.1,
) -> Propagation:
    """Clients are placed at random in a square; propagation time is proportional to distance."""
    key = streams.key("place")
    positions = [
        (randomness.uniform(key, 2 * client), randomness.uniform(key, 2 * client + 1))
        for client in range(num_clients)
    ]

    def propagation_s(sender: int, recipient: int) -> float:
        (x, y), (a, b) = positions[sender], positions[recipient]
        return side_s * hypot(x - a, y - b)

    return propagation_s


@geography
def regions(
    num_clients: int,
    streams: Streams,
    *,
    delays_s: Annotated[
        list[list[NonNegative]],
        Doc("row: region of the sender, column: region of the recipient; need not be symmetric"),
    ],
    members: Annotated[
        list[NonNegativeInt] | None,
        Doc("the region of each client; by default client i is in region i modulo the number of regions"),
    ] = None,
) -> Propagation:
    """Clients are in regions; a matrix gives the propagation time from region to region."""
    num_regions = len(delays_s)
    if num_regions == 0 or any(len(row) != num_regions for row in delays_s):
        raise OptionError("delays_s", "must be a square matrix with one row and one column per region")
    region = list(range(num_regions)) * num_clients if members is None else members
    if members is not None and len(members) != num_clients:
        raise OptionError("members", f"needs {num_clients} entries, one per client; has {len(members)}")
    if members is not None and max(members) >= num_regions:
        raise OptionError("members", f"there is no region {max(members)}; allowed: 0 to {num_regions - 1}")
    return lambda sender, recipient: delays_s[region[sender]][region[recipient]]


@geography(check=in_order("low_s", "high_s"))
def per_link(
    num_clients: int,
    streams: Streams,
    *,
    low_s: Annotated[NonNegative, Doc("shortest delay")] = 0.0,
    high_s: Annotated[NonNegative, Doc("longest delay")] = 0.1,
    symmetric: Annotated[bool, Doc("whether both directions of a link have the same delay")] = False,
) -> Propagation:
    """Each link has a delay between low_s and high_s, drawn once per run."""

    def propagation_s(sender: int, recipient: int) -> float:
        ends = sorted((sender, recipient)) if symmetric else (sender, recipient)
        return low_s + (high_s - low_s) * randomness.uniform(streams.key("propagation", *ends), 0)

    return propagation_s
