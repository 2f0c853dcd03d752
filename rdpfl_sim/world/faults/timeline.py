"""The state of all faults, computed from the fault records of a run.

Verification, dashboard, trace and reports all read fault records through `FaultTimeline`. It follows the
same rules as the simulated world: faults of the same kind may overlap, and each end cancels one start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeAlias, cast

from rdpfl_sim.errors import RunError
from rdpfl_sim.world.faults.fault import END, START, Condition, FaultFields, fault_class
from rdpfl_sim.world.network.obstacles import DirectedLink, Sides

Subject: TypeAlias = int | DirectedLink | Sides
"""The subject of a fault: a client, a directed link, or the sides of a partition."""


class FaultInterval(NamedTuple):
    """The time from the first start of a condition to its last end; `end_s` is None while it lasts."""

    condition: Condition
    subject: Subject
    start_s: float
    end_s: float | None


class FaultEffect(NamedTuple):
    """The consequences of one fault record."""

    condition: Condition | None
    """The condition that starts or ends; None if the topology changes."""
    stopped: list[int]
    """Clients that were running before this record."""
    resumed: list[int]
    """Clients that run again, in the order of the record."""
    ended: list[FaultInterval]
    unmatched: list[Subject]
    """Subjects for which the record ends a condition that had not started."""


@dataclass
class _Active:
    start_s: float
    details: list[Any] = field(default_factory=list)
    """One entry per start without an end, such as the factor of a slow-down."""


class FaultTimeline:
    """The clients, links and partitions affected by faults after the records applied so far."""

    def __init__(self) -> None:
        self.stopped: set[int] = set()
        """Clients that are stopped because they have crashed, not yet joined, or departed."""
        self.num_records = 0
        self.links: Sequence[Sequence[int]] | None = None
        """All links after the latest change of the topology; None if it has not changed."""
        self._active: defaultdict[Condition, dict[Any, _Active]] = defaultdict(dict)

    @property
    def crashed(self) -> Set[int]:
        """Clients that are down because of a crash."""
        return self._active[Condition.CRASHED].keys()

    @property
    def absent(self) -> Set[int]:
        """Clients that have not joined yet."""
        return self._active[Condition.ABSENT].keys()

    @property
    def departed(self) -> Set[int]:
        """Clients that have left the network."""
        return self._active[Condition.DEPARTED].keys()

    @property
    def withdrawn(self) -> Set[int]:
        """Clients that are no neighbours of other clients."""
        conditions = self._active.items()
        return {client for condition, clients in conditions if condition.withdraws for client in clients}

    @property
    def stopped_for_good(self) -> Set[int]:
        """Clients that will not run again: departed, or crashed without recovery."""
        crashes = self._active[Condition.CRASHED].items()
        return self.departed | {client for client, crash in crashes if True in crash.details}

    @property
    def slow(self) -> Mapping[int, float]:
        """The factor by which training takes longer, for each slow client."""
        slowdowns = self._active[Condition.SLOW].items()
        return {client: prod(active.details) for client, active in slowdowns}

    @property
    def partitions(self) -> Set[Sides]:
        """The active partitions."""
        return self._active[Condition.PARTITIONED].keys()

    @property
    def links_down(self) -> Set[DirectedLink]:
        """The directed links that are interrupted."""
        return self._active[Condition.LINK_DOWN].keys()

    def is_partitioned(self, sender: int, recipient: int) -> bool:
        """Return whether two clients are on different sides of an active partition."""
        return any(
            sender in one and any(recipient in other for other in sides if other is not one)
            for sides in self.partitions
            for one in sides
        )

    def apply(self, record: FaultFields) -> FaultEffect:
        """Update the state with the next fault record, or raise `RunError` if its kind is unknown."""
        condition = condition_of(record)
        self.num_records += 1
        effect = FaultEffect(condition, [], [], [], [])
        if condition is None:
            self.links = record["links"]
        elif record["phase"] == START:
            self._start(condition, record, effect)
        else:
            self._end(condition, record, effect)
        return effect

    def active(self) -> Iterator[FaultInterval]:
        """Yield an interval without end for every active condition."""
        for condition, of_condition in self._active.items():
            for subject, active in of_condition.items():
                yield FaultInterval(condition, subject, active.start_s, None)

    def _start(self, condition: Condition, record: FaultFields, effect: FaultEffect) -> None:
        of_condition = self._active[condition]
        for subject in _subjects(condition, record):
            active = of_condition.setdefault(subject, _Active(record["time_s"]))
            active.details.append(_detail(condition, record))
            if condition.stops and subject not in self.stopped:
                self.stopped.add(subject)
                effect.stopped.append(subject)

    def _end(self, condition: Condition, record: FaultFields, effect: FaultEffect) -> None:
        of_condition = self._active[condition]
        detail = _detail(condition, record)
        for subject in _subjects(condition, record):
            active = of_condition.get(subject)
            if active is None or detail not in active.details:
                effect.unmatched.append(subject)
                continue
            active.details.remove(detail)
            if active.details:
                continue
            del of_condition[subject]
            effect.ended.append(FaultInterval(condition, subject, active.start_s, record["time_s"]))
            if condition.stops and not self._is_stopped(subject):
                self.stopped.discard(subject)
                effect.resumed.append(subject)

    def _is_stopped(self, subject: Subject) -> bool:
        return any(subject in subjects for condition, subjects in self._active.items() if condition.stops)


def fault_intervals(records: Iterable[FaultFields]) -> Iterator[FaultInterval]:
    """Yield the intervals in a run's fault records, sorted by end; intervals without an end come last."""
    timeline = FaultTimeline()
    for record in records:
        yield from timeline.apply(record).ended
    yield from timeline.active()


def condition_of(record: FaultFields) -> Condition | None:
    """Return the condition that a fault record starts or ends, or None if it changes the topology.

    Raise `RunError` if no fault has this kind and phase.
    """
    kind, phase = record["kind"], record["phase"]
    fault = fault_class(kind)
    if fault is None:
        raise RunError(f"unknown kind of fault {kind!r}; is the package that defines it installed?")
    if phase not in ((START, END) if fault.ends() else (START,)):
        raise RunError(f"unknown phase {phase!r} of a fault of kind {kind!r}")
    subjects = "links" if fault.CONDITION is None else fault.CONDITION.subjects
    if subjects not in record:
        raise RunError(f"a fault of kind {kind!r} has no {subjects}")
    return fault.CONDITION


def _subjects(condition: Condition, record: FaultFields) -> Iterable[Any]:
    items = record[condition.subjects]
    match condition.subjects:
        case "clients":
            return cast("Iterable[int]", items)
        case "links":
            return map(tuple, items)
        case "sides":
            return [tuple(map(frozenset, items))]


def _detail(condition: Condition, record: FaultFields) -> Any:
    """Return the detail that distinguishes overlapping faults with the same condition.

    False counts as missing: the end of a crash does not state whether the client recovers.
    """
    return None if condition.detail is None else record.get(condition.detail) or None
