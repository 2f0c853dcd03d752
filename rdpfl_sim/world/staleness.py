"""Staleness: which late messages are used, and their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rdpfl_sim.components.options import Count, Doc, PositiveFraction
from rdpfl_sim.components.registry import Facts, Registry

STALENESS = Registry("staleness", Facts)
staleness = STALENESS.register


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
def decay(
    *,
    max_age: MaxAge = 5,
    factor: Annotated[PositiveFraction, Doc("weight of a message per round of age")] = 0.5,
) -> Staleness:
    """Messages up to max_age rounds old are weighted by factor^age."""
    return Staleness(max_age, decay=factor)
