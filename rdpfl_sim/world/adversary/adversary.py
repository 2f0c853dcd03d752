"""The adversary: what a group of Byzantine clients knows, and what they send, when and to whom."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from rdpfl_sim.errors import note_client_round
from rdpfl_sim.maths.attacks import Attack, View
from rdpfl_sim.maths.attacks.equivocation import Equivocation, same
from rdpfl_sim.methods.base import Method
from rdpfl_sim.methods.payload import Payload
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.world.adversary.observations import Knowledge, stacked
from rdpfl_sim.world.adversary.schedules import Schedule, ScheduleView, always
from rdpfl_sim.world.adversary.timing import MEMORY_ROUNDS, ScheduledMessage, TimingAttack, TimingView, prompt
from rdpfl_sim.world.kernel import Call, Kernel
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.network.network import Network

if TYPE_CHECKING:
    from rdpfl_sim.world.client import Client

Level = Literal["own", "neighbourhood", "omniscient"]


@dataclass(frozen=True)
class Plan:
    """What the attackers have agreed on.

    `knowledge` says whose updates they see: their own, those that reach them as messages, or all honest ones
    from the moment at which they are computed. Attackers that collude share what they know.
    """

    attack: Attack
    sees_honest: bool = False
    sees_victim: bool = False
    poisons_labels: bool = False
    collective: bool = False
    """Whether the attack says the same, whichever attacker makes it up."""
    timing: TimingAttack = prompt
    remembers: bool = False
    """Whether the timing attack sends messages of earlier rounds."""
    schedule: Schedule = always
    equivocation: Equivocation = same
    knowledge: Level = "omniscient"
    collude: bool = True
    patience_s: float | None = None
    """How long an attacker waits for what it wants to know; None is as long as it takes."""


@dataclass(frozen=True)
class DelayedMessage:
    """A parcel that waits for its time."""

    attacker: int
    recipient: int
    parcel: ScheduledMessage
    num_stops: int
    """How often its sender had stopped when it was held back; a parcel does not survive the next stop."""


class Adversary:
    """Directs a group of Byzantine clients.

    It obeys causality: it knows an update from the moment at which its client has computed it, or from the
    moment at which it arrives as a message. An attacker that wants to see updates of its own round waits for
    them until its patience ends, and then takes of every client the latest that is known.
    """

    STATE = (
        *("rounds", "shared", "alone", "seen_in", "waiting", "memories", "past", "num_stops"),
        *("_slowest", "_latest"),
    )
    CALLS = ("_on_time",)

    def __init__(
        self,
        plan: Plan,
        members: Sequence[int],
        liars: Collection[int],
        kernel: Kernel,
        network: Network,
        clients: Sequence[Client],
        streams: Streams,
        method: Method,
    ) -> None:
        self.plan = plan
        self.members = frozenset(members)
        self.liars = frozenset(liars)
        self.kernel = kernel
        self.network = network
        self.num_clients = len(network.links)
        self.clients = clients
        self.streams = streams
        self.method = method
        self.sees_updates_of = self._sees_updates_of()
        self.rounds = dict.fromkeys(members, 0)
        self.shared = Knowledge()
        self.alone = {member: Knowledge() for member in members}
        self.seen_in: dict[int, set[int]] = {}
        """Whose updates of a round are known, of the rounds that attackers still wait for."""
        self.waiting: dict[int, None] = {}
        """Attackers that do not know enough to send, in the order in which they began to wait."""
        self.memories: dict[int, dict[str, Any]] = {member: {} for member in members}
        self.past: dict[int, dict[int, dict[int, Payload]]] = {member: {} for member in members}
        self.num_stops: Counter[int] = Counter()
        self._slowest: float = 0
        self._latest: tuple[list[Tensor], Tensor | None] = ([], None)

    def see(self, client: int, round_: int, payload: Payload) -> None:
        """A client has computed its update; one that has diverged is of no use."""
        if payload.is_finite:
            self._knowledge_of(client).add(client, round_, payload.vector)
        if round_ > self._slowest:  # else every attacker is past it
            self.seen_in.setdefault(round_, set()).add(client)
            self.reconsider()

    def overhear(self, attacker: Client, message: Message) -> None:
        """Learn from a message that has reached an attacker and that its mailbox does not reject."""
        if self.plan.knowledge != "neighbourhood" or not self.plan.sees_honest:
            return
        if message.sender not in self.liars and attacker.life.mailbox.why_rejected(message) is None:
            self._knowledge_of(attacker.id).add(message.sender, message.round, message.payload.vector)
        self.reconsider()

    def is_active(self, attacker: Client) -> bool:
        """Whether it is time to attack."""
        moment = ScheduleView(
            attacker.life.round,
            self.kernel.now,
            partitioned=bool(self.network.obstacles.partitions),
            num_trusted=lambda: self._num_trusted(attacker),
        )
        try:
            return self.plan.schedule(moment)
        except Exception as error:  # it is not always the attacker's own event
            note_client_round(error, attacker.id, attacker.life.round)
            raise

    def poisons(self, attacker: Client) -> bool:
        """Whether the attacker trains on poisoned data in this round."""
        return self.plan.poisons_labels and self.is_active(attacker)

    def is_ready(self, attacker: Client) -> bool:
        """Whether it knows all that it wants to know before it sends its message of this round."""
        plan, life = self.plan, attacker.life
        if not plan.sees_honest or not self.is_active(attacker):
            return True
        if plan.knowledge == "neighbourhood":
            return life.mailbox.silent <= self.liars
        if plan.knowledge == "own" and not plan.collude:
            return True
        return self._has_seen_all(life.round)

    def reconsider(self) -> None:
        """Something has happened: attackers that wait may know enough now."""
        for attacker in [member for member in self.waiting if self.is_ready(self.clients[member])]:
            del self.waiting[attacker]
            self.clients[attacker].stop_waiting()

    def forget(self, attacker: int) -> None:
        """An attacker has stopped: it waits for nothing, and what it held back is lost."""
        self.waiting.pop(attacker, None)
        self.num_stops[attacker] += 1

    def retire(self, attacker: int) -> None:
        """An attacker will never come back: nothing has to be remembered for it."""
        del self.rounds[attacker]
        self._slowest = min(self.rounds.values(), default=inf)

    def send(self, attacker: Client, own: Payload) -> None:
        """Send whatever the attacker sends in this round."""
        round_, recipients = attacker.life.round, attacker.neighbours
        self.waiting.pop(attacker.id, None)  # its patience may have ended
        self._advance(attacker.id, round_)
        if not self.is_active(attacker):
            self.network.send(attacker.id, round_, round_, own, recipients)
            return
        contents = self._contents(attacker, own)
        if self.plan.timing is prompt and contents.keys() == {None}:
            self.network.send(attacker.id, round_, round_, contents[None], recipients)
            return
        for recipient in self.network.send_order(recipients, round_):
            for parcel in self._parcels(attacker, recipient, contents.get(recipient) or contents[None]):
                self._post(DelayedMessage(attacker.id, recipient, parcel, self.num_stops[attacker.id]))

    def _sees_updates_of(self) -> frozenset[int]:
        """Whose updates it sees as soon as they are computed."""
        if self.plan.sees_honest and self.plan.knowledge == "omniscient":
            return frozenset(range(self.num_clients)) - self.liars
        if self.plan.sees_honest and self.plan.knowledge == "own":
            return self.members
        return frozenset()

    def _contents(self, attacker: Client, own: Payload) -> dict[int | None, Payload]:
        """What the attack wants to tell each recipient; None stands for all of them."""
        plan = self.plan
        to_all = None if plan.sees_victim else self._made_up(attacker, own, None)
        if to_all is not None and plan.equivocation is same:
            return {None: Payload(to_all, own.mask)}
        contents: dict[int | None, Payload] = {}
        key = self.streams.key("equivocation", attacker.id)
        for recipient in attacker.neighbours:
            m = self._made_up(attacker, own, recipient) if to_all is None else to_all
            told = plan.equivocation(own.vector, m, uniform(key, recipient))
            contents[recipient] = Payload(told, own.mask)
        return contents

    def _made_up(self, attacker: Client, own: Payload, recipient: int | None) -> Tensor:
        """The attack's vector; with a recipient, the one for it."""
        plan, round_, knowledge = self.plan, attacker.life.round, self._knowledge_of(attacker.id)
        index = () if recipient is None else (recipient,)
        details: dict[str, Any] = {
            "round": round_,
            "seed": self.streams.key("attack", attacker.id, round_, *index),
            "memory": self.memories[attacker.id],
            "origin": _only_row(self.method.reference_point(attacker.life.learning)),
        }
        if not plan.sees_honest:
            return plan.attack(View(own.vector, **details))
        candidates, allies = sorted(knowledge.updates), self.members
        if recipient is not None:
            around = self.clients[recipient].neighbours
            allies = self.members.intersection(around)
            if plan.knowledge != "own":
                candidates = [client for client in around if client not in self.liars]
            details["victim"] = knowledge.latest(recipient, round_)
            if plan.knowledge == "omniscient":
                expected = _only_row(self.method.predicted_direction(self.clients[recipient].life.learning))
                details["expected"] = None if expected is None or expected.isnan().any() else expected
        ids, updates = knowledge.of(candidates, round_)
        said = self._said_of(updates) if plan.collective else None
        if said is not None:
            return said
        seen = stacked(updates, otherwise=own.vector)
        num_byzantine = max(1, len(allies)) if plan.collude else 1
        m = plan.attack(View(own.vector, seen, ids, num_byzantine=num_byzantine, **details))
        self._latest = (updates, m)
        return m

    def _said_of(self, updates: list[Tensor]) -> Tensor | None:
        """What the attack has last made of exactly these updates."""
        known, m = self._latest
        equal = len(known) == len(updates) > 0 and all(map(operator.is_, known, updates))
        return m if equal else None

    def _parcels(self, attacker: Client, recipient: int, payload: Payload) -> list[ScheduledMessage]:
        round_ = attacker.life.round
        past = self.past[attacker.id].setdefault(recipient, {})
        past[round_] = payload
        if len(past) > (MEMORY_ROUNDS if self.plan.remembers else 1):
            del past[min(past)]
        return self.plan.timing(
            TimingView(
                round=round_,
                recipient=recipient,
                now_s=self.kernel.now,
                deadline_s=self.clients[recipient].deadline_s(round_),
                past=past,
                key=self.streams.key("timing attack", attacker.id),
                num_clients=self.num_clients,
            )
        )

    def _post(self, held: DelayedMessage) -> None:
        if held.parcel.delay_s == 0:
            self._release(held)
        else:
            self.kernel.post(Call(self._on_time, held), self.kernel.now + held.parcel.delay_s)

    def _on_time(self, call: Call) -> None:
        self._release(call.subject)

    def _release(self, held: DelayedMessage) -> None:
        attacker, recipient, parcel = self.clients[held.attacker], held.recipient, held.parcel
        survives = (
            held.num_stops == self.num_stops[attacker.id]
            and attacker.id not in self.network.obstacles.clients_down
        )
        if survives and recipient in attacker.neighbours:
            self.network.send(attacker.id, attacker.life.round, parcel.stamp, parcel.payload, (recipient,))

    def _knowledge_of(self, client: int) -> Knowledge:
        """Where what this client computes or hears is written down."""
        apart = not self.plan.collude and self.plan.knowledge != "omniscient"
        return self.alone[client] if apart else self.shared

    def _num_trusted(self, attacker: Client) -> int:
        mine = attacker.life.mailbox
        others = (n for n in (*mine.neighbours, *mine.former) if n not in self.liars)
        return sum(self.clients[other].life.mailbox.num_used_of(attacker.id) for other in others)

    def _has_seen_all(self, round_: int) -> bool:
        """Whether the updates of all that are up are known; of rounds long past they were."""
        seen, down = self.seen_in.get(round_, set()), self.network.obstacles.clients_down
        if round_ <= self._slowest or len(seen) + len(down) < len(self.sees_updates_of):
            return round_ <= self._slowest
        return all(client in seen or client in down for client in self.sees_updates_of)

    def _advance(self, attacker: int, round_: int) -> None:
        """Note how far the attackers are: nobody will ask for what lies before the slowest."""
        self.rounds[attacker] = round_
        self._slowest = min(self.rounds.values())
        for past in [past for past in self.seen_in if past <= self._slowest]:
            del self.seen_in[past]
        self.shared.horizon = self._slowest
        self.alone[attacker].horizon = round_


def _only_row(rows: Tensor | None) -> Tensor | None:
    return None if rows is None else rows[0]
