"""Check that a fault can be recorded, and that its condition states its effect.

Reports and `verify` use only the condition and the record fields of a fault.
"""

from __future__ import annotations

from typing import Any

import orjson

from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.compute_time import ComputeTimes, TrainingTimes
from rdpfl_sim.world.faults.fault import (
    START,
    Change,
    Clients,
    Condition,
    End,
    Fault,
    Neighbours,
    fault_class,
)
from rdpfl_sim.world.network.obstacles import Obstacles

OBSTACLES = (Condition.LINK_DOWN, Condition.PARTITIONED)
"""The conditions from which `verify` derives the links that lose all messages."""


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
        return f"never ends: its CONDITION is {kind.CONDITION}"
    try:
        record = orjson.loads(orjson.dumps(change.fields))
    except TypeError as error:
        return f"cannot be recorded: {error}"
    if kind.CONDITION is None:
        return None if "links" in record else "needs the field 'links' in its record: it has no CONDITION"
    if kind.start is not Fault.start or kind.end is not Fault.end:
        return f"defines start() or end(), which follow from its CONDITION: remove them from {name}"
    return _condition_flaw(kind.CONDITION, record)


class EffectTarget:
    """A `FaultTarget` that records the methods that a condition calls."""

    def __init__(self) -> None:
        self.obstacles = Obstacles()
        self.training_times = TrainingTimes(ComputeTimes(lambda u, client: 1.0, [], 0.0, Streams(0)))
        self.calls: set[str] = set()

    def stop(self, clients: Clients, for_good: bool) -> None:
        """Record a stop."""
        self.calls.add("stop")

    def restart(self, clients: Clients, fresh: bool, catch_up: bool) -> None:
        """Record a restart."""
        self.calls.add("restart")

    def withdraw(self, clients: Clients) -> None:
        """Record a withdrawal."""
        self.calls.add("withdraw")

    def readmit(self, clients: Clients) -> None:
        """Record the end of a withdrawal."""
        self.calls.add("readmit")

    def set_topology(self, neighbours: Neighbours) -> None:
        """Record a new topology."""
        self.calls.add("set_topology")


def _condition_flaw(condition: Condition, record: dict[str, Any]) -> str | None:
    """Return the first statement of a condition that is not true of its effect, or None."""
    target, starts = EffectTarget(), record["phase"] == START
    try:
        _ = record[condition.subjects]
        condition.start(target, record)
        if not starts and condition.end is not None:
            target.calls.clear()
            condition.end(target, record)
    except KeyError as error:
        return f"needs the field {error} in its record, because its CONDITION is {condition}"
    blocked = target.obstacles
    if condition not in OBSTACLES and (blocked.links_down or blocked.partitions or blocked.clients_down):
        return "blocks links, but its CONDITION is neither LINK_DOWN nor PARTITIONED"
    expected = {
        "stop" if starts else "restart": condition.stops,
        "withdraw" if starts else "readmit": condition.withdraws,
        "set_topology": False,
    }
    for call, is_stated in expected.items():
        if (call in target.calls) is not is_stated:
            flags = f"stops={condition.stops} and withdraws={condition.withdraws}"
            verb = "does not call" if is_stated else "calls"
            return f"{verb} {call}(), but its CONDITION states {flags}"
    return None
