"""Waiting for messages: when a round may proceed, and the weights of late messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rdpfl_sim.components.options import Count, Doc, Positive, PositiveFraction
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.rounding import round_up

WAITS = Registry("wait", Facts)
wait = WAITS.register
STALENESS = Registry("staleness", Facts)
staleness = STALENESS.register


@dataclass(frozen=True)
class Wait:
    """Wait for messages from a fraction of the neighbours, or until the timeout."""

    fraction: float
    timeout_s: float | None

    def num_needed(self, num_neighbours: int) -> int:
        """Return the number of neighbours whose messages are required."""
        return round_up(self.fraction * num_neighbours)


Timeout = Annotated[Positive | None, Doc("maximum waiting time; by default unlimited")]


@wait(name="all")
def wait_all(*, timeout_s: Timeout = None) -> Wait:
    """Wait for messages from all neighbours: the synchronous algorithm."""
    return Wait(1.0, timeout_s)


@wait
def quorum(
    *,
    fraction: Annotated[PositiveFraction, Doc("fraction of neighbours waited for")] = 0.5,
    timeout_s: Timeout = None,
) -> Wait:
    """Wait for messages from a fraction of the neighbours."""
    return Wait(fraction, timeout_s)


@wait
def deadline(*, seconds: Annotated[Positive, Doc("waiting time per round")] = 1.0) -> Wait:
    """Wait for messages from all neighbours, but no longer than the given time after sending."""
    return Wait(1.0, seconds)


@wait(name="none")
def wait_none() -> Wait:
    """Do not wait: use the messages that have arrived (fully asynchronous)."""
    return Wait(0.0, None)


@dataclass(frozen=True)
class Staleness:
    """The weight of a message of age a (in rounds): decay^a. Messages older than max_age are dropped."""

    max_age: int
    decay: float

    def weight(self, age: int) -> float:
        """Return the weight of a message; a message from a later round (age < 0) has full weight."""
        return 1.0 if age <= 0 else self.decay**age


@staleness
def drop() -> Staleness:
    """Messages from earlier rounds are dropped."""
    return Staleness(max_age=0, decay=1.0)


MaxAge = Annotated[Count, Doc("maximum age of a usable message, in rounds")]


@staleness
def keep(*, max_age: MaxAge = 5) -> Staleness:
    """Messages up to max_age rounds old have full weight."""
    return Staleness(max_age, decay=1.0)


@staleness
def decay(*, max_age: MaxAge = 5, factor: PositiveFraction = 0.5) -> Staleness:
    """Messages up to max_age rounds old are weighted by factor^age."""
    return Staleness(max_age, decay=factor)
