"""The interface of faults and their schedules.

A fault is a class with the fields of its records and a condition, which defines its effect on the world.
A schedule is a component: a function of the `FaultContext` that returns the starts and ends of faults in the
order of their times, possibly infinitely many. Schedules do not depend on the run, so two runs that differ
only in their method have the same faults. Faults may overlap; an end undoes one start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import (
    LARGE,
    ClientSet,
    Doc,
    NonNegative,
    Positive,
    PositiveFraction,
    client_ids,
    round_down,
)
from rdpfl_sim.components.registry import Facts, Registry, load_plugins
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams, exponential_quantile, uniform
from rdpfl_sim.world.compute_time import TrainingTimes
from rdpfl_sim.world.network.obstacles import Obstacles, Sides

FaultFields: TypeAlias = Mapping[str, Any]
"""The fields of a fault record, as written or as read from JSON."""

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


Clients: TypeAlias = tuple[int, ...]
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


ChosenClients: TypeAlias = Annotated[
    ClientSet | None, Doc("ids, or a string such as '0..4, 7'; either this or fraction")
]
ChosenFraction: TypeAlias = Annotated[
    PositiveFraction | None, Doc("fraction of the clients, drawn at random, rounded down to whole clients")
]
From: TypeAlias = Annotated[NonNegative, Doc("start time of the fault")]
Until: TypeAlias = Annotated[Positive | None, Doc("end time of the fault; by default it never ends")]
MeanTime: TypeAlias = Annotated[float, Ge(1e-6), Le(LARGE)]
"""Mean seconds between recurring faults. With smaller values, simulated time would hardly advance."""
RecoveredState: TypeAlias = Annotated[
    Literal["kept", "fresh"], Doc("whether a client recovers with its own model or with a new one")
]
CatchUp: TypeAlias = Annotated[
    bool, Doc("whether a client recovers in the latest round of its neighbours instead of its own round")
]


def chosen_clients(context: FaultContext, clients: ClientSet | None, fraction: float | None) -> Clients:
    """Return the listed clients, or a random fraction; a larger fraction only adds clients."""
    if clients is not None:
        if fraction is not None:
            raise OptionError("fraction", "give either clients or fraction, not both")
        return client_ids("clients", clients, context.num_clients)
    if fraction is None:
        raise OptionError("clients", "is required, unless fraction is given")
    order = shuffled(context.num_clients, Streams(context.key).key("chosen"))
    return tuple(sorted(order[: num_clients_in(fraction, context.num_clients)]))


def num_clients_in(fraction: float, num_clients: int) -> int:
    """Return the number of clients in a fraction, rounded down; raise an error if it is zero."""
    num = round_down(fraction * num_clients)
    if num == 0:
        raise OptionError("fraction", f"is less than one client; allowed: at least 1/{num_clients}")
    return num


def shuffled(num_clients: int, key: int) -> list[int]:
    """Return all clients in an order drawn from a random stream."""
    return sorted(range(num_clients), key=partial(uniform, key))


def once(fault: Fault, from_s: float, until_s: float | None) -> Schedule:
    """Start a fault, and end it unless until_s is None."""
    if until_s is None:
        return iter([(from_s, Start(fault))])
    if until_s <= from_s:
        raise OptionError("until_s", f"must be after from_s = {from_s:g}")
    return iter([(from_s, Start(fault)), (until_s, End(fault))])


def random_intervals(key: int, mean_between_s: float, mean_length_s: float) -> Iterator[tuple[float, float]]:
    """Yield the start and end of successive intervals, with exponential lengths and pauses."""
    end_s = 0.0
    for number in count():
        start_s = end_s + exponential_quantile(uniform(key, 2 * number), mean_between_s)
        end_s = start_s + exponential_quantile(uniform(key, 2 * number + 1), mean_length_s)
        yield start_s, end_s
