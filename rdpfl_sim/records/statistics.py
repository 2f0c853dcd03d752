"""The summary of a run: accuracy over clients, message accounting, the neighbourhoods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def spread_of(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, worst, 10th percentile and spread (population standard deviation) over clients."""
    if not values:
        return None
    array = np.asarray(values, dtype=float)
    return {
        "mean": float(array.mean()),
        "worst": float(array.min()),
        "p10": float(np.percentile(array, 10)),
        "spread": float(array.std()),
    }


def accuracy(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Accuracy of the honest clients and of all, from one metrics row per client."""
    rows = list(rows)
    groups = {"honest": [row for row in rows if not row["byzantine"]], "all": rows}
    return {
        group: {
            test: spread_of(
                [row[f"{test}_accuracy"] for row in members if row[f"{test}_accuracy"] is not None]
            )
            for test in ("personal", "global")
        }
        for group, members in groups.items()
    }


def with_accuracy(by_hops: dict[str, Any], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The honest clients' accuracy beside what else is known, by distance to the nearest attacker."""
    accuracies: dict[str, list[float]] = {}
    for row in rows:
        if not row["byzantine"] and row["hops"] is not None:
            accuracies.setdefault(str(row["hops"]), []).append(row["personal_accuracy"])
    return {
        hops: {
            "num_clients": len(values),
            "personal_accuracy": float(np.mean(values)),
            **by_hops.get(hops, {}),
        }
        for hops, values in sorted(accuracies.items(), key=lambda item: int(item[0]))
    }


def messages(
    sent: int, delivered: int, lost: int, in_flight: int, fates: Counter[str], left_over: int
) -> dict[str, int]:
    """What became of every message.

    sent = delivered + lost + in_flight, delivered = used + stale + duplicate + rejected + left_over.
    """
    account = {
        "sent": sent,
        "delivered": delivered,
        "lost": lost,
        "in_flight": in_flight,
        **{fate: fates[fate] for fate in ("used", "stale", "duplicate", "rejected")},
        "left_over": left_over,
    }
    assert sent == delivered + lost + in_flight, f"messages went missing on links: {account}"
    assert delivered == sum(fates.values()) + left_over, f"messages went missing in mailboxes: {account}"
    return account
