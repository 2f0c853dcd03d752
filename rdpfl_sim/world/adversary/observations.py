"""Updates of other clients that attackers have observed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

MEMORY_ROUNDS = 16
"""Number of updates kept per client, for attackers that lag behind the client."""


@dataclass
class Observations:
    """Updates by client and round: the latest few per client, and only one up to `horizon`."""

    updates: dict[int, dict[int, Tensor]] = field(default_factory=dict)
    horizon: float = 0
    """Of the updates up to this round, only the latest is needed."""

    def add(self, client: int, round_: int, update: Tensor) -> None:
        """Store an update."""
        updates = self.updates.setdefault(client, {})
        updates[round_] = update
        for stamp in sorted(stamp for stamp in updates if stamp <= self.horizon)[:-1]:
            del updates[stamp]
        if len(updates) > MEMORY_ROUNDS:
            del updates[min(updates)]

    def latest(self, client: int, round_: int) -> Tensor | None:
        """Return the client's update of the round, or the latest before it, or the earliest after it."""
        updates = self.updates.get(client)
        if not updates:
            return None
        stamp = round_
        if round_ not in updates:
            past = [stamp for stamp in updates if stamp < round_]
            stamp = max(past) if past else min(updates)
        return updates[stamp]

    def of(self, clients: Iterable[int], round_: int) -> tuple[list[int], list[Tensor]]:
        """Return the clients that have been observed, and the `latest` update of each."""
        found = {client: self.latest(client, round_) for client in clients}
        known = {client: update for client, update in found.items() if update is not None}
        return list(known), list(known.values())


def stacked(updates: list[Tensor], otherwise: Tensor) -> Tensor:
    """Return the updates as rows, or one substitute row if there are none."""
    return torch.stack(updates) if updates else otherwise.unsqueeze(0)
