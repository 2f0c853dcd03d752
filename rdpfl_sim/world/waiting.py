"""How long a client waits for its neighbours, and what it does with what is late."""

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
    """Wait until a fraction of the neighbours has been heard, or until the timeout."""

    fraction: float
    timeout_s: float | None

    def num_needed(self, num_neighbours: int) -> int:
        """How many neighbours have to be heard."""
        return round_up(self.fraction * num_neighbours)


Timeout = Annotated[Positive | None, Doc("give up after so many seconds; without it, wait for ever")]


@wait(name="all")
def wait_all(*, timeout_s: Timeout = None) -> Wait:
    """Until every neighbour's message of this round is here: the synchronous algorithm."""
    return Wait(1.0, timeout_s)


@wait
def quorum(*, fraction: PositiveFraction = 0.5, timeout_s: Timeout = None) -> Wait:
    """Until a fraction of the neighbours has been heard."""
    return Wait(fraction, timeout_s)


@wait
def deadline(*, seconds: Positive = 1.0) -> Wait:
    """Until every neighbour has been heard, but no longer than so many seconds."""
    return Wait(1.0, seconds)


@wait(name="none")
def wait_none() -> Wait:
    """Not at all: use what is here (fully asynchronous)."""
    return Wait(0.0, None)


@dataclass(frozen=True)
class Staleness:
    """A message of age a (in rounds) counts with weight decay^a up to max_age, and not at all beyond."""

    max_age: int
    decay: float

    def weight(self, age: int) -> float:
        """The weight of a message; one from a faster neighbour's later round (age < 0) counts fully."""
        return 1.0 if age <= 0 else self.decay**age


@staleness
def drop() -> Staleness:
    """Messages of earlier rounds are dropped."""
    return Staleness(max_age=0, decay=1.0)


MaxAge = Annotated[Count, Doc("oldest usable message, in rounds")]


@staleness
def keep(*, max_age: MaxAge = 5) -> Staleness:
    """Messages up to max_age rounds old count fully."""
    return Staleness(max_age, decay=1.0)


@staleness
def decay(*, max_age: MaxAge = 5, factor: PositiveFraction = 0.5) -> Staleness:
    """Messages up to max_age rounds old count with weight factor^age."""
    return Staleness(max_age, decay=factor)
