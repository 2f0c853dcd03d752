"""Compute time: the simulated duration of local training.

A compute-time model gives every client its base time once per run. Jitter varies it from round to round, and
faults multiply it while they slow a client down. The speed of the machine has no influence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import Count, Doc, Positive, in_order
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams, lognormal_quantile, uniform

COMPUTE = Registry("compute", Facts)
compute = COMPUTE.register

ComputeModel: TypeAlias = Callable[[float, int], float]
"""Seconds per unit of work, from a uniform draw and a client."""

LogSpread: TypeAlias = Annotated[float, Ge(0), Le(10)]  # larger values give times above exp(80) seconds


class ComputeTimes:
    """The base time of every client and the jitter per round.

    `num_units` is the work per round of every client: its number of local steps, or 1. The duration of the
    local training in a round is log-normal with the base time as its median and `jitter` as its sigma.
    """

    def __init__(
        self, model: ComputeModel, num_units: Sequence[int], jitter: float, streams: Streams
    ) -> None:
        key = streams.key("speed")
        self.base_s = [model(uniform(key, client), client) * num for client, num in enumerate(num_units)]
        self.jitter = jitter
        self.streams = streams

    def duration_s(self, client: int, round_: int) -> float:
        """Return the duration of a client's local training in a round."""
        if self.jitter == 0:
            return self.base_s[client]
        u = uniform(self.streams.key("jitter", client), round_)
        return lognormal_quantile(u, self.base_s[client], self.jitter)


class TrainingTimes:
    """Durations of local training in a run: compute times, multiplied by the slow-downs of faults."""

    STATE = ("slowdowns",)

    def __init__(self, compute_times: ComputeTimes) -> None:
        self.compute_times = compute_times
        self.slowdowns: dict[int, list[float]] = {}
        """The factors that currently apply to each client."""

    def duration_s(self, client: int, round_: int) -> float:
        """Return the duration of a client's local training if it starts now."""
        return self.compute_times.duration_s(client, round_) * prod(self.slowdowns.get(client, ()))

    def slow_down(self, client: int, factor: float) -> None:
        """Multiply the durations of a client by a factor."""
        self.slowdowns.setdefault(client, []).append(factor)

    def end_slow_down(self, client: int, factor: float) -> None:
        """Undo one slow-down of a client by this factor."""
        self.slowdowns[client].remove(factor)


@compute
def constant(
    u: float, client: int, *, seconds: Annotated[Positive, Doc("compute time of every client")] = 1.0
) -> float:
    """The same time for every client."""
    return seconds


@compute(name="uniform", check=in_order("low_s", "high_s"))
def uniform_speed(
    u: float,
    client: int,
    *,
    low_s: Annotated[Positive, Doc("shortest compute time")] = 0.5,
    high_s: Annotated[Positive, Doc("longest compute time")] = 1.5,
) -> float:
    """A time between low_s and high_s, drawn once per client."""
    return low_s + (high_s - low_s) * u


@compute(name="lognormal")
def lognormal_speed(
    u: float,
    client: int,
    *,
    median_s: Annotated[Positive, Doc("median compute time")] = 1.0,
    sigma: Annotated[LogSpread, Doc("spread: standard deviation of the logarithm")] = 0.5,
) -> float:
    """A log-normal time, drawn once per client: a few clients are stragglers."""
    return lognormal_quantile(u, median_s, sigma)


@compute
def stragglers(
    u: float,
    client: int,
    *,
    seconds: Annotated[Positive, Doc("compute time of the other clients")] = 1.0,
    slowdown: Annotated[Positive, Doc("slowdown of stragglers")] = 10.0,
    every: Annotated[Count, Doc("number of clients per straggler")] = 5,
) -> float:
    """Clients 0, every, 2 every, ... are `slowdown` times slower than the others."""
    return seconds * slowdown if client % every == 0 else seconds


def _check_list(options: Any, num_clients: int) -> None:
    num = len(options.seconds)
    if num != num_clients:
        raise OptionError("seconds", f"must have {num_clients} entries, one per client; it has {num}")


@compute(name="list", check=_check_list)
def listed(
    u: float, client: int, *, seconds: Annotated[list[Positive], Doc("one entry per client")]
) -> float:
    """A list with the time of every client."""
    return seconds[client]
