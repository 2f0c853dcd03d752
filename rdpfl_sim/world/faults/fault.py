"""The interface of faults and their schedules.

A fault is a class with the fields of its records and a condition, which defines its effect on the world.
A schedule is a component: a function of the `FaultContext` that returns the starts and ends of faults in the
order of their times, possibly infinitely many. Schedules do not depend on the run, so two runs that differ
only in their method have the same faults. Faults may overlap; an end undoes one start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, ClassVar, TypeAlias

from rdpfl_sim.components.plugin_loading import load_plugins
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.world.faults.condition import Condition, FaultTarget, Neighbours

FaultFields: TypeAlias = dict[str, Any]
"""Fields of a fault record, as JSON."""

START, END = "start", "end"
"""The phases of a fault in the records."""


class Fault:
    """A disturbance that starts and may end. Subclasses are frozen dataclasses, stored in checkpoints."""

    KIND: ClassVar[str]
    """The name of the fault in the records."""
    CONDITION: ClassVar[Condition | None] = None
    """The condition of clients or links during the fault. None if it changes the topology and never ends.

    Without a condition, the field `links` of the record contains all links from now on.
    """

    def start(self, target: FaultTarget) -> None:
        """Change the world."""
        assert self.CONDITION is not None, f"{type(self).__name__} has neither a CONDITION nor a start()"
        self.CONDITION.start(target, self.start_fields())

    def end(self, target: FaultTarget) -> None:
        """Undo the change."""
        if self.CONDITION is None or self.CONDITION.end is None:
            raise NotImplementedError(f"{type(self).__name__} never ends")
        self.CONDITION.end(target, self.end_fields())

    @classmethod
    def ends(cls) -> bool:
        """Return whether the fault can end."""
        return cls.CONDITION is not None and cls.CONDITION.end is not None

    def start_fields(self) -> FaultFields:
        """Return the fields of the record of the start."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def end_fields(self) -> FaultFields:
        """Return the fields of the record of the end."""
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
    """The inputs of a schedule: the clients, their links at the start, and a random stream.

    `links` are pairs (i, j), i < j. `key` identifies a random stream of the fault. `draw_topology(k)` returns
    the neighbours of every client in the k-th new draw of the scenario's topology, k >= 1.
    `build_topology(topology)` returns the neighbours of every client in a different topology. `training_s` is
    the shortest training time of a client, if known. Only warnings may depend on it.
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
    """Whether the fault can prevent messages from arriving."""
    makes_partitions: bool = False
    """Whether the fault starts partitions, on which attack schedules may depend."""
    changes_topology: bool = False
    """Whether the fault replaces the neighbours of clients."""


FAULTS = Registry("fault", FaultFacts)
fault = FAULTS.register


def fault_classes(parent: type[Fault] = Fault) -> list[type[Fault]]:
    """Return the class of every fault, including faults from imported plug-ins."""
    return [found for kind in parent.__subclasses__() for found in (kind, *fault_classes(kind))]


def fault_class(kind: str) -> type[Fault] | None:
    """Return the class with this name in the records, built in or from an installed plug-in."""
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
