"""Fault records in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdpfl_sim.reports.text import first_items, named_items, quantity
from rdpfl_sim.world.faults.fault import END
from rdpfl_sim.world.faults.topology_change import TopologyChange


def fault_text(record: Mapping[str, Any]) -> str:
    """Return what a fault record starts or ends, and what it affects.

    >>> fault_text({"kind": "link_outage", "phase": "end", "links": [[0, 1], [1, 0]]})
    'link outage ends: 2 links: 0 to 1, 1 to 0'
    """
    return f"{change_text(record)}: {affected_text(record)}"


def change_text(record: Mapping[str, Any]) -> str:
    """Return what a fault record starts or ends.

    >>> change_text({"kind": "slow_down", "phase": "start"}), change_text({"kind": "crash", "phase": "end"})
    ('slow down', 'crash ends')
    """
    kind = record["kind"].replace("_", " ")
    return f"{kind} ends" if record["phase"] == END else kind


def affected_text(record: Mapping[str, Any]) -> str:
    """Return the clients or links that a fault record affects; missing fields may be None.

    >>> affected_text({"kind": "slow_down", "clients": [3], "factor": 4.0})
    'client 3, 4 times as slow'
    >>> affected_text({"kind": "partition", "sides": [[0, 1], [2]]})
    '0, 1 | 2'
    """
    clients, sides, links = (record.get(key) for key in ("clients", "sides", "links"))
    if clients is not None:
        factor = "" if record.get("factor") is None else f", {record['factor']:g} times as slow"
        permanent = ", permanently" if record.get("for_good") else ""
        return f"{named_items('client', clients)}{factor}{permanent}"
    if sides is not None:
        return " | ".join(map(first_items, sides))
    between = "-" if record["kind"] == TopologyChange.KIND else " to "
    pairs = [f"{i}{between}{j}" for i, j in links or []]
    return f"{quantity(len(pairs), 'link')}: {first_items(pairs)}"
