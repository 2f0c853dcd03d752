"""Fault records in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdpfl_sim.reports.text import first_items, named_items, quantity


def fault_text(record: Mapping[str, Any]) -> str:
    """Return the change of a fault record and what it affects.

    >>> fault_text({"change": "links_down", "links": [[0, 1], [1, 0]]})
    'links down: 2 links: 0 to 1, 1 to 0'
    """
    return f"{record['change'].replace('_', ' ')}: {affected_text(record)}"


def affected_text(record: Mapping[str, Any]) -> str:
    """Return the clients or links that a fault record affects; missing fields may be None.

    >>> affected_text({"change": "slow", "clients": [3], "factor": 4.0})
    'client 3, 4 times as slow'
    >>> affected_text({"change": "cut", "sides": [[0, 1], [2]]})
    '0, 1 | 2'
    """
    clients, sides, links = (record.get(key) for key in ("clients", "sides", "links"))
    if clients is not None:
        factor = "" if record.get("factor") is None else f", {record['factor']:g} times as slow"
        permanent = ", permanently" if record.get("for_good") else ""
        return f"{named_items('client', clients)}{factor}{permanent}"
    if sides is not None:
        return " | ".join(map(first_items, sides))
    between = "-" if record["change"] == "rewire" else " to "
    pairs = [f"{i}{between}{j}" for i, j in links or []]
    return f"{quantity(len(pairs), 'link')}: {first_items(pairs)}"
