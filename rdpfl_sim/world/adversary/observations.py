"""Updates of other clients that attackers have observed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

MEMORY_ROUNDS = 16
"""Updates kept per client, for attackers that lag behind it."""


@dataclass
class Observations:
    """Updates by client and round: the latest few per client, and one of those before `horizon`."""

    updates: dict[int, dict[int, Tensor]] = field(default_factory=dict)
    horizon: float = 0
    """No update before this round will be needed."""

    def add(self, client: int, round_: int, update: Tensor) -> None:
        """Store an update."""
        updates = self.updates.setdefault(client, {})
        updates[round_] = update
        for stamp in sorted(stamp for stamp in updates if stamp <= self.horizon)[:-1]:
            del updates[stamp]
        if len(updates) > MEMORY_ROUNDS:
            del updates[min(updates)]

    def latest(self, client: int, round_: int) -> Tensor | None:
        """Return the client's update of the round, or its latest before, or its earliest after."""
        updates = self.updates.get(client)
        if not updates:
            return None
        stamp = round_
        if round_ not in updates:
            past = [stamp for stamp in updates if stamp < round_]
            stamp = max(past) if past else min(updates)
        return updates[stamp]

    def of(self, clients: Iterable[int], round_: int) -> tuple[list[int], list[Tensor]]:
        """Return the observed clients among these, and their updates that fit the round best."""
        found = {client: self.latest(client, round_) for client in clients}
        known = {client: update for client, update in found.items() if update is not None}
        return list(known), list(known.values())


def stacked(updates: list[Tensor], otherwise: Tensor) -> Tensor:
    """Return the updates as rows, or one substitute row if there are none."""
    return torch.stack(updates) if updates else otherwise.unsqueeze(0)
