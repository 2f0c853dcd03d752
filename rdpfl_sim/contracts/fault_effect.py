"""Check that the effect of a fault matches its record.

Reports and `verify` use only the condition and the record fields of a fault.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

import orjson

from rdpfl_sim.world.faults.fault import (
    START,
    Change,
    Clients,
    Condition,
    End,
    Neighbours,
    fault_class,
)
from rdpfl_sim.world.network.obstacles import Obstacles

Effect: TypeAlias = list[tuple[Any, ...]]
"""Calls of a `FaultTarget`, sorted, and the obstacles afterwards."""

FIELDS = {Condition.PARTITIONED: "sides", Condition.LINK_DOWN: "links", None: "links"}
"""The record field that lists what a fault affects, if it is not `clients`."""


def effect_flaw(change: Change) -> str | None:
    """Return the problem with a fault's kind, record or effect, or None."""
    kind = type(change.fault)
    name = kind.__name__
    if not isinstance(getattr(kind, "KIND", None), str):
        return f"has no name for the records: set {name}.KIND"
    known = fault_class(kind.KIND)
    if known is not None and known.CONDITION is not kind.CONDITION:
        return f"has the KIND {kind.KIND!r} in the records, which {known.__name__} already uses"
    if isinstance(change, End) and not kind.ends():
        return f"never ends: define {name}.end()"
    try:
        record = orjson.loads(orjson.dumps(change.fields))
    except TypeError as error:
        return f"cannot be recorded: {error}"
    field = FIELDS.get(kind.CONDITION, "clients")
    if field not in record:
        return f"needs the field {field!r} in its record, because its CONDITION is {kind.CONDITION}"
    expected, found = _stated_effect(kind.CONDITION, record), _effect(change)
    if found != expected:
        return f"has a different effect than its record states: {_text(found)}, not {_text(expected)}"
    return None


class EffectTarget:
    """A `FaultTarget` that records the calls of a fault."""

    def __init__(self) -> None:
        self.obstacles = Obstacles()
        self.calls: Effect = []

    def stop(self, clients: Clients, for_good: bool) -> None:
        """Record a stop."""
        self.calls.append(("stop", list(clients), for_good))

    def restart(self, clients: Clients, fresh: bool, catch_up: bool) -> None:
        """Record a restart."""
        self.calls.append(("restart", list(clients), fresh, catch_up))

    def withdraw(self, clients: Clients) -> None:
        """Record a withdrawal."""
        self.calls.append(("withdraw", list(clients)))

    def readmit(self, clients: Clients) -> None:
        """Record the end of a withdrawal."""
        self.calls.append(("readmit", list(clients)))

    def slow_down(self, clients: Clients, factor: float) -> None:
        """Record a slow-down."""
        self.calls.append(("slow down", list(clients), factor))

    def end_slow_down(self, clients: Clients, factor: float) -> None:
        """Record the end of a slow-down."""
        self.calls.append(("end slow down", list(clients), factor))

    def set_topology(self, neighbours: Neighbours) -> None:
        """Record a new topology."""
        links = [[i, j] for i, around in enumerate(neighbours) for j in around if i < j]
        self.calls.append(("set topology", links))

    @property
    def effect(self) -> Effect:
        """All effects of the fault."""
        sides = [[sorted(side) for side in partition] for partition in self.obstacles.partitions]
        links = [list(link) for link in self.obstacles.links_down.elements()]
        obstacles: Effect = [("partition", one) for one in sides]
        obstacles += [("links down", sorted(links))] if links else []
        obstacles += [("client down", client) for client in self.obstacles.clients_down]
        return sorted([*self.calls, *obstacles], key=repr)


def _effect(change: Change) -> Effect:
    """Return the effect of a change. For an end, the start is applied first."""
    target = EffectTarget()
    if isinstance(change, End):
        change.fault.start(target)
        target.calls.clear()
    change.apply(target)
    return target.effect


def _stated_effect(condition: Condition | None, record: dict[str, Any]) -> Effect:
    """Return the effect that `verify` derives from a record."""
    clients, starts = record.get("clients"), record["phase"] == START
    for_good = record.get("for_good", False)
    restart = "restart", clients, record.get("fresh", False), record.get("catch_up", True)
    calls: Effect
    match condition:
        case Condition.CRASHED:
            calls = [("stop", clients, for_good)] if starts else [restart]
        case Condition.ABSENT:
            stop = [("stop", clients, False), ("withdraw", clients)]
            calls = [*stop] if starts else [("readmit", clients), restart]
        case Condition.DEPARTED:
            calls = [("stop", clients, True), ("withdraw", clients)]
        case Condition.SLOW:
            calls = [("slow down" if starts else "end slow down", clients, record.get("factor"))]
        case Condition.PARTITIONED:
            calls = [("partition", record["sides"])] if starts else []
        case Condition.LINK_DOWN:
            calls = [("links down", sorted(record["links"]))] if starts else []
        case None:
            calls = [("set topology", record["links"])]
        case _:
            assert_never(condition)
    return sorted(calls, key=repr)


def _text(effect: Effect) -> str:
    return "; ".join(" ".join(map(str, call)) for call in effect) or "nothing"
