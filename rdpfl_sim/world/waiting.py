"""Waiting for messages: when a round may proceed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rdpfl_sim.components.options import Doc, Positive, PositiveFraction, round_up
from rdpfl_sim.components.registry import Facts, Registry

WAITS = Registry("wait", Facts)
wait = WAITS.register


@dataclass(frozen=True)
class Wait:
    """Wait for messages from a fraction of the neighbours, or until the timeout.

    All clients share one policy. What changes during a run belongs to `ClientState`.
    """

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
