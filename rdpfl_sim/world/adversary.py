"""The adversary: what Byzantine clients know together, and what they send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rdpfl_sim.maths.attacks import Attack, View
from rdpfl_sim.maths.types import Payload
from rdpfl_sim.randomness import Streams

MEMORY_ROUNDS = 16
"""How many updates of one honest client are remembered for attackers that lag behind it."""


class Adversary:
    """Directs all Byzantine clients.

    An attack that sees honest updates is omniscient within causality: an honest update of round t is
    known from the moment at which its client has computed it. A Byzantine client waits for all of them
    until its patience ends, and then takes of each honest client the latest update up to round t.
    """

    def __init__(
        self,
        attack: Attack,
        neighbours: Sequence[Sequence[int]],
        byzantine: Sequence[int],
        streams: Streams,
        *,
        sees_honest: bool,
        sees_victim: bool,
        patience_s: float | None,
        expects: Callable[[int], Tensor | None],
    ) -> None:
        self.attack = attack
        self.neighbours = neighbours
        self.byzantine = frozenset(byzantine)
        self.honest = [client for client in range(len(neighbours)) if client not in self.byzantine]
        self.streams = streams
        self.sees_honest = sees_honest
        self.sees_victim = sees_victim
        self.patience_s = patience_s
        self.expects = expects
        self.rounds = dict.fromkeys(byzantine, 0)
        self.slowest = 0
        self.updates: dict[int, dict[int, Tensor]] = {client: {} for client in self.honest}
        self.num_computed: Counter[int] = Counter()
        self.waiting: dict[int, tuple[int, Callable[[], None]]] = {}

    def observe(self, client: int, round_: int, payload: Payload) -> None:
        """An honest client has computed its update; one that has diverged is of no use."""
        if not self.sees_honest:
            return
        if payload.is_finite:
            self.updates[client][round_] = payload.vector
            self._forget(self.updates[client])
        if round_ <= self.slowest:  # every attacker is past it
            return
        self.num_computed[round_] += 1
        if self.knows(round_):
            for attacker, (awaited, wake) in list(self.waiting.items()):
                if awaited == round_:
                    del self.waiting[attacker]
                    wake()

    def knows(self, round_: int) -> bool:
        """Whether the attack has all that it wants to see: the honest updates of the round."""
        return not self.sees_honest or self.num_computed[round_] == len(self.honest)

    def notify(self, attacker: int, round_: int, wake: Callable[[], None]) -> None:
        """Call `wake` as soon as the adversary knows the honest updates of the round."""
        self.waiting[attacker] = (round_, wake)

    def messages(self, client: int, round_: int, own: Payload) -> dict[int, Payload]:
        """What a Byzantine client sends to each of its neighbours."""
        recipients = self.neighbours[client]
        seed = self.streams.key("attack", client, round_)
        self.waiting.pop(client, None)  # its patience may have ended
        if self.sees_honest:
            self._advance(client, round_)
        if not self.sees_victim:
            seen = self._known(self.honest, round_, own.vector) if self.sees_honest else None
            return dict.fromkeys(recipients, Payload(self.attack(View(own.vector, seen, None, seed))))
        messages = {}
        for victim in recipients:
            honest = [j for j in self.neighbours[victim] if j not in self.byzantine]
            view = View(own.vector, self._known(honest, round_, own.vector), self.expects(victim), seed)
            messages[victim] = Payload(self.attack(view))
        return messages

    def _known(self, clients: Sequence[int], round_: int, own: Tensor) -> Tensor:
        """The clients' updates of the round, or their latest before; if none is known, the attacker's own."""
        rows = []
        for updates in (self.updates[client] for client in clients):
            if updates:
                past = [stamp for stamp in updates if stamp <= round_]
                rows.append(updates[max(past) if past else min(updates)])
        return torch.stack(rows) if rows else own.unsqueeze(0)

    def _advance(self, attacker: int, round_: int) -> None:
        """Note how far the attackers are: nobody will ask for what lies before the slowest."""
        self.rounds[attacker] = round_
        slowest = min(self.rounds.values())
        for past in range(self.slowest + 1, slowest + 1):
            del self.num_computed[past]
        self.slowest = slowest

    def _forget(self, updates: dict[int, Tensor]) -> None:
        """Keep of a client's updates only what an attacker may still ask for."""
        past = sorted(stamp for stamp in updates if stamp <= self.slowest)
        for stamp in past[:-1]:
            del updates[stamp]
        while len(updates) > MEMORY_ROUNDS:
            del updates[min(updates)]
