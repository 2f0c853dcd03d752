"""What attackers have seen of other clients' updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

MEMORY_ROUNDS = 16
"""How many updates of one client are remembered, for attackers that lag behind it."""


@dataclass
class Knowledge:
    """Updates by client and round: the latest few of each client, and of those before `horizon` one."""

    updates: dict[int, dict[int, Tensor]] = field(default_factory=dict)
    horizon: float = 0
    """Nobody will ask for an update before this round."""

    def add(self, client: int, round_: int, update: Tensor) -> None:
        """Remember an update."""
        updates = self.updates.setdefault(client, {})
        updates[round_] = update
        for stamp in sorted(stamp for stamp in updates if stamp <= self.horizon)[:-1]:
            del updates[stamp]
        if len(updates) > MEMORY_ROUNDS:
            del updates[min(updates)]

    def latest(self, client: int, round_: int) -> Tensor | None:
        """The client's update of the round, or else its latest before, or else its earliest after."""
        updates = self.updates.get(client)
        if not updates:
            return None
        stamp = round_
        if round_ not in updates:
            past = [stamp for stamp in updates if stamp < round_]
            stamp = max(past) if past else min(updates)
        return updates[stamp]

    def of(self, clients: Iterable[int], round_: int) -> tuple[list[int], list[Tensor]]:
        """The clients of whom something is known, and their updates that fit the round best."""
        found = {client: self.latest(client, round_) for client in clients}
        known = {client: update for client, update in found.items() if update is not None}
        return list(known), list(known.values())


def stacked(updates: list[Tensor], otherwise: Tensor) -> Tensor:
    """The updates as rows; if there are none, one row that stands in for them."""
    return torch.stack(updates) if updates else otherwise.unsqueeze(0)
