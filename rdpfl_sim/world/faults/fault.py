"""What all faults have in common.

A fault is a class: how it affects the world when it starts and when it ends, and how the records name this.
A schedule is a component: a function of the `FaultContext` that returns the starts and ends of faults in the
order of their times, possibly without end. Schedules are known before the run and do not depend on it, so two
runs that differ only in their method have the same faults. Faults may overlap; an end undoes one start.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from operator import itemgetter
from typing import Any, ClassVar, Protocol, TypeAlias

from rdpfl_sim.components.plugin_loading import load_plugins
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.world.network.obstacles import Obstacles

Clients: TypeAlias = tuple[int, ...]
Neighbours: TypeAlias = Sequence[Sequence[int]]
FaultFields: TypeAlias = dict[str, Any]
"""Fields of a fault record, as JSON."""
"""The neighbours of every client."""


START, END = "start", "end"
"""The phases of a fault in the records."""


class FaultTarget(Protocol):
    """What a fault can change: the interface of the world."""

    @property
    def obstacles(self) -> Obstacles:
        """What keeps messages from crossing links."""

    def stop(self, clients: Clients, for_good: bool) -> None:
        """Stop clients. The others are not notified."""

    def restart(self, clients: Clients, fresh: bool, catch_up: bool) -> None:
        """Undo one stop of each client.

        With `fresh` it restarts with a new model, with `catch_up` in the round of its furthest neighbour.
        """

    def withdraw(self, clients: Clients) -> None:
        """Remove clients from the neighbour lists of all others."""

    def readmit(self, clients: Clients) -> None:
        """Undo one withdrawal of each client."""

    def slow_down(self, clients: Clients, factor: float) -> None:
        """Multiply the duration of the local training of clients."""

    def end_slow_down(self, clients: Clients, factor: float) -> None:
        """Undo one slow-down of each client by this factor."""

    def set_topology(self, neighbours: Neighbours) -> None:
        """Replace the links of all clients."""


class Condition(Enum):
    """What a fault does to its subject for as long as it lasts, in the words of the reports."""

    CRASHED = "down"
    ABSENT = "not yet joined"
    DEPARTED = "departed"
    SLOW = "slow"
    PARTITIONED = "partitioned"
    LINK_DOWN = "link down"


class Fault(ABC):
    """A disturbance that starts and may end. Subclasses are frozen dataclasses: checkpoints hold them."""

    KIND: ClassVar[str]
    """Its name in the records."""
    CONDITION: ClassVar[Condition | None] = None
    """What it does to its subject for as long as it lasts; None if it changes the topology and never ends.

    Reports and checks follow a run's faults by this and by the field of the records that names the subject:
    `sides` if PARTITIONED, `links` (directed) if LINK_DOWN, `links` (all links from now on) if None, else
    `clients`.
    """

    @abstractmethod
    def start(self, target: FaultTarget) -> None:
        """Change the world."""

    def end(self, target: FaultTarget) -> None:
        """Undo the change."""
        raise NotImplementedError(f"{type(self).__name__} never ends")

    @classmethod
    def ends(cls) -> bool:
        """Return whether it can end."""
        return cls.end is not Fault.end

    def start_fields(self) -> FaultFields:
        """Return the fields of the record of its start."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def end_fields(self) -> FaultFields:
        """Return the fields of the record of its end."""
        return self.start_fields()


@dataclass(frozen=True)
class Start:
    """A fault starts."""

    fault: Fault

    @property
    def fields(self) -> FaultFields:
        """Its fields in the records."""
        return {"kind": self.fault.KIND, "phase": START, **self.fault.start_fields()}

    def apply(self, target: FaultTarget) -> None:
        """Change the world."""
        self.fault.start(target)


@dataclass(frozen=True)
class End:
    """A fault ends."""

    fault: Fault

    @property
    def fields(self) -> FaultFields:
        """Its fields in the records."""
        assert self.fault.ends(), f"{type(self.fault).__name__} never ends"
        return {"kind": self.fault.KIND, "phase": END, **self.fault.end_fields()}

    def apply(self, target: FaultTarget) -> None:
        """Undo the change."""
        self.fault.end(target)


Change: TypeAlias = Start | End
Schedule: TypeAlias = Iterator[tuple[float, Change]]


@dataclass(frozen=True)
class FaultContext:
    """What a schedule may depend on: the clients, their links at the start, and a random stream.

    `links` are pairs (i, j), i < j. `key` names a random stream of this fault. `draw_topology(k)` returns the
    neighbours of every client in the k-th new draw of the scenario's topology, k >= 1;
    `build_topology(topology)` those in another topology. `training_s` is the shortest training time of a
    client if it is known: only warnings may depend on it.
    """

    num_clients: int
    links: Sequence[tuple[int, int]]
    key: int
    draw_topology: Callable[[int], Neighbours]
    build_topology: Callable[..., Neighbours]
    training_s: float | None = None
    warn: Callable[[str], None] = lambda text: None


@dataclass(frozen=True, kw_only=True)
class FaultFacts(Facts):
    """Metadata of a fault, set by its decorator."""

    may_lose_messages: bool = True
    """Whether it can keep a message from arriving."""
    makes_partitions: bool = False
    """Whether it starts partitions, for which an attack schedule may wait."""


FAULTS = Registry("fault", FaultFacts)
fault = FAULTS.register


def fault_classes(parent: type[Fault] = Fault) -> list[type[Fault]]:
    """Return the class of every fault, including those of plug-ins that have been imported."""
    return [found for kind in parent.__subclasses__() for found in (kind, *fault_classes(kind))]


def fault_class(kind: str) -> type[Fault] | None:
    """Return the class with this name in the records, built in or of an installed plug-in."""
    load_plugins(FAULTS)
    return next((found for found in fault_classes() if getattr(found, "KIND", None) == kind), None)


def merged(schedules: Iterable[Schedule]) -> Iterator[tuple[float, int, Change]]:
    """Merge schedules by time, each change with the position of its schedule.

    Simultaneous changes are in the order of the schedules.
    """
    numbered = (_numbered(position, schedule) for position, schedule in enumerate(schedules))
    return heapq.merge(*numbered, key=itemgetter(0))


def _numbered(position: int, schedule: Schedule) -> Iterator[tuple[float, int, Change]]:
    for time_s, change in schedule:
        yield time_s, position, change
