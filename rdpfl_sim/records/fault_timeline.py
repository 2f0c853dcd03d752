"""The state of all faults, computed from the fault records of a run.

Verification, dashboard, trace and reports all read fault records through `FaultTimeline`. It follows the
same rules as the simulated world: faults of the same kind may overlap, and each end cancels one start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any, NamedTuple, TypeAlias

from rdpfl_sim.errors import RunError
from rdpfl_sim.world.faults.fault import END, START, Condition, fault_class
from rdpfl_sim.world.network.obstacles import DirectedLink, Sides

Subject: TypeAlias = int | DirectedLink | Sides
"""The subject of a fault: a client, a directed link, or the sides of a partition."""


STOPPING = (Condition.CRASHED, Condition.ABSENT, Condition.DEPARTED)
"""Conditions in which a client is stopped."""


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
    details: list[float | None] = field(default_factory=list)
    """One entry per start without an end: a slowdown's factor, or infinity for a crash without recovery."""


class FaultTimeline:
    """The clients, links and partitions affected by faults after the records applied so far."""

    def __init__(self) -> None:
        self.stopped: set[int] = set()
        """Clients that are stopped because they have crashed, not yet joined, or departed."""
        self.num_records = 0
        self.links: Sequence[Sequence[int]] | None = None
        """All links after the latest change of the topology; None if it has not changed."""
        self._active: dict[Condition, dict[Any, _Active]] = {condition: {} for condition in Condition}

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
    def stopped_for_good(self) -> Set[int]:
        """Clients that will not run again: departed, or crashed without recovery."""
        crashes = self._active[Condition.CRASHED].items()
        return self.departed | {client for client, crash in crashes if inf in crash.details}

    @property
    def slow(self) -> Mapping[int, float]:
        """The factor by which training takes longer, for each slow client."""
        slowdowns = self._active[Condition.SLOW].items()
        return {client: prod(factor or 1.0 for factor in active.details) for client, active in slowdowns}

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

    def apply(self, record: Mapping[str, Any]) -> FaultEffect:
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
        for condition in Condition:
            for subject, active in self._active[condition].items():
                yield FaultInterval(condition, subject, active.start_s, None)

    def _start(self, condition: Condition, record: Mapping[str, Any], effect: FaultEffect) -> None:
        of_condition = self._active[condition]
        for subject in _subjects(condition, record):
            active = of_condition.setdefault(subject, _Active(record["time_s"]))
            active.details.append(_detail(record))
            if condition in STOPPING and subject not in self.stopped:
                self.stopped.add(subject)
                effect.stopped.append(subject)

    def _end(self, condition: Condition, record: Mapping[str, Any], effect: FaultEffect) -> None:
        of_condition = self._active[condition]
        detail = _detail(record)
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
            if condition in STOPPING and not any(subject in self._active[other] for other in STOPPING):
                self.stopped.discard(subject)
                effect.resumed.append(subject)


def fault_intervals(records: Iterable[Mapping[str, Any]]) -> Iterator[FaultInterval]:
    """Yield the intervals in a run's fault records, sorted by end; intervals without an end come last."""
    timeline = FaultTimeline()
    for record in records:
        yield from timeline.apply(record).ended
    yield from timeline.active()


def condition_of(record: Mapping[str, Any]) -> Condition | None:
    """Return the condition that a fault record starts or ends, or None if it changes the topology.

    Raise `RunError` if no fault has this kind and phase.
    """
    kind, phase = record["kind"], record["phase"]
    fault = fault_class(kind)
    if fault is None:
        raise RunError(f"unknown kind of fault {kind!r}; is the package that defines it installed?")
    if phase not in ((START, END) if fault.ends() else (START,)):
        raise RunError(f"unknown phase {phase!r} of a fault of kind {kind!r}")
    return fault.CONDITION


def _subjects(condition: Condition, record: Mapping[str, Any]) -> Iterable[Any]:
    if condition is Condition.PARTITIONED:
        return [tuple(frozenset(side) for side in record["sides"])]
    return map(tuple, record["links"]) if condition is Condition.LINK_DOWN else record["clients"]


def _detail(record: Mapping[str, Any]) -> float | None:
    """Return the detail that distinguishes overlapping faults with the same condition."""
    return inf if record.get("for_good") else record.get("factor")
