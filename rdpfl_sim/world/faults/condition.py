"""Conditions: the effects of faults on clients, links and the network.

A condition defines the effect of a fault as a function of the fields of its record. The world, the reports,
`verify` and the check of plug-ins all use this definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from rdpfl_sim.world.compute_time import TrainingTimes
from rdpfl_sim.world.network.obstacles import Obstacles, Sides

Clients: TypeAlias = tuple[int, ...]
FaultFields: TypeAlias = Mapping[str, Any]
"""The fields of a fault record, as written or as read from JSON."""
Neighbours: TypeAlias = Sequence[Sequence[int]]
"""The neighbours of every client."""


class FaultTarget(Protocol):
    """The interface of the world for faults."""

    @property
    def obstacles(self) -> Obstacles:
        """The current obstacles on links."""

    @property
    def training_times(self) -> TrainingTimes:
        """The durations of local training."""

    def stop(self, clients: Clients, for_good: bool) -> None:
        """Stop clients. Other clients are not notified."""

    def restart(self, clients: Clients, fresh: bool, catch_up: bool) -> None:
        """Undo one stop of each client.

        With `fresh`, it restarts with a new model; with `catch_up`, in the latest round of its neighbours.
        """

    def withdraw(self, clients: Clients) -> None:
        """Remove clients from the neighbour lists of all other clients."""

    def readmit(self, clients: Clients) -> None:
        """Undo one withdrawal of each client."""

    def set_topology(self, neighbours: Neighbours) -> None:
        """Replace the links of all clients."""


Effect: TypeAlias = Callable[[FaultTarget, FaultFields], None]
"""A change of the world, given the fields of the fault's record."""


@dataclass(frozen=True, eq=False)
class Condition:
    """The condition of clients or links during a fault."""

    CRASHED: ClassVar[Condition]
    ABSENT: ClassVar[Condition]
    DEPARTED: ClassVar[Condition]
    SLOW: ClassVar[Condition]
    PARTITIONED: ClassVar[Condition]
    LINK_DOWN: ClassVar[Condition]

    label: str
    """The name in reports and messages."""
    start: Effect
    end: Effect | None = None
    """None if the condition never ends."""
    subjects: Literal["clients", "links", "sides"] = "clients"
    """The record field with the subjects: clients, directed links, or the sides of a partition."""
    detail: str | None = None
    """The record field that distinguishes overlapping faults: an end undoes a start with an equal value."""
    stops: bool = False
    """Whether the clients are stopped."""
    withdraws: bool = False
    """Whether the clients are removed from the neighbour lists of other clients."""

    def __str__(self) -> str:
        return self.label


def _clients(fields: FaultFields) -> Clients:
    return tuple(fields["clients"])


def _sides(fields: FaultFields) -> Sides:
    return tuple(map(frozenset, fields["sides"]))


def _crash(target: FaultTarget, fields: FaultFields) -> None:
    target.stop(_clients(fields), fields.get("for_good", False))


def _recover(target: FaultTarget, fields: FaultFields) -> None:
    target.restart(_clients(fields), fields.get("fresh", False), fields.get("catch_up", True))


def _be_absent(target: FaultTarget, fields: FaultFields) -> None:
    target.stop(_clients(fields), for_good=False)
    target.withdraw(_clients(fields))


def _join(target: FaultTarget, fields: FaultFields) -> None:
    target.readmit(_clients(fields))
    _recover(target, fields)


def _depart(target: FaultTarget, fields: FaultFields) -> None:
    target.withdraw(_clients(fields))
    target.stop(_clients(fields), for_good=True)


def _slow_down(target: FaultTarget, fields: FaultFields) -> None:
    for client in _clients(fields):
        target.training_times.slow_down(client, fields["factor"])


def _end_slow_down(target: FaultTarget, fields: FaultFields) -> None:
    for client in _clients(fields):
        target.training_times.end_slow_down(client, fields["factor"])


Condition.CRASHED = Condition("down", _crash, _recover, detail="for_good", stops=True)
Condition.ABSENT = Condition("not yet joined", _be_absent, _join, stops=True, withdraws=True)
Condition.DEPARTED = Condition("departed", _depart, stops=True, withdraws=True)
Condition.SLOW = Condition("slow", _slow_down, _end_slow_down, detail="factor")
Condition.PARTITIONED = Condition(
    "partitioned",
    lambda target, fields: target.obstacles.partitions.append(_sides(fields)),
    lambda target, fields: target.obstacles.partitions.remove(_sides(fields)),
    subjects="sides",
)
Condition.LINK_DOWN = Condition(
    "down",
    lambda target, fields: target.obstacles.take_down(map(tuple, fields["links"])),
    lambda target, fields: target.obstacles.bring_up(map(tuple, fields["links"])),
    subjects="links",
)
