"""What every method is: what a client sends, and how it updates its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from torch import Tensor

from rdpfl_sim.maths.types import Local, Payload, Received

Diagnostics: TypeAlias = Mapping[str, float | bool | None]
"""What a method reports of one round; each entry becomes a field of the round's record."""


@dataclass(frozen=True)
class Inspection:
    """How a method treats the messages of one round, in their order.

    Distances are Euclidean: to the client's own update, and to what the method predicted, if it predicts.
    Weights say with which share each message entered the aggregate; they add up to 1.
    """

    distance_to_own: list[float]
    distance_to_predicted: list[float] | None
    weight: list[float] | None


@dataclass(frozen=True)
class Settings:
    """What a method knows of the run before it starts."""

    learning_rate: float
    rounds: int


@dataclass(frozen=True)
class State:
    """A client's learning state; methods that remember more derive from it.

    States are values: `update` returns a new one and never changes a tensor that it was given.
    """

    w: Tensor


class Method(Protocol):
    """A personalised learning method. It holds its options and no state of any client."""

    exchanges: bool
    """False if clients never send anything, so that nobody waits."""

    def start(self, w: Tensor) -> State:
        """The state of a client that begins with model w."""

    def outgoing(self, state: State, own: Local) -> Payload:
        """What the client sends to its neighbours after its local training."""

    def update(self, state: State, own: Local, received: Sequence[Received]) -> tuple[State, Diagnostics]:
        """The state after the round, given the messages that arrived (possibly none), sorted by sender."""

    def inspect(self, state: State, own: Local, received: Sequence[Received]) -> Inspection:
        """What `update` makes of these messages (at least one), for people who study the method."""

    def expects(self, state: State) -> Tensor | None:
        """The neighbourhood direction that the client predicts for its next round, if it predicts one."""
