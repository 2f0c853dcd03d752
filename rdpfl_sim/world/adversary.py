"""The adversary: what a group of Byzantine clients knows, and what they send, when and to whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from rdpfl_sim.maths.attacks import Attack, View
from rdpfl_sim.maths.equivocation import Equivocation, same
from rdpfl_sim.maths.types import Payload
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.world.attack_schedules import Moment, Schedule, always
from rdpfl_sim.world.kernel import Call, Kernel
from rdpfl_sim.world.knowledge import Knowledge, stacked
from rdpfl_sim.world.message import Message
from rdpfl_sim.world.network import Network
from rdpfl_sim.world.timing_attacks import MEMORY_ROUNDS, Occasion, Parcel, TimingAttack, prompt

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
class HeldBack:
    """A parcel that waits for its time."""

    attacker: Client
    recipient: int
    round: int
    parcel: Parcel


class Adversary:
    """Directs a group of Byzantine clients.

    It obeys causality: it knows an update from the moment at which its client has computed it, or from the
    moment at which it arrives as a message. An attacker that wants to see updates of its own round waits for
    them until its patience ends, and then takes of every client the latest that is known.
    """

    def __init__(
        self,
        plan: Plan,
        members: Sequence[int],
        liars: Collection[int],
        kernel: Kernel,
        network: Network,
        clients: Sequence[Client],
        streams: Streams,
        expects: Callable[[Client], Tensor | None],
    ) -> None:
        self.plan = plan
        self.members = frozenset(members)
        self.liars = frozenset(liars)
        self.kernel = kernel
        self.network = network
        self.num_clients = len(network.links)
        self.clients = clients
        self.streams = streams
        self.expects = expects
        self.sees_updates_of = self._sees_updates_of()
        self.rounds = dict.fromkeys(members, 0)
        self.shared = Knowledge()
        self.alone = {member: Knowledge() for member in members}
        self.num_seen: Counter[int] = Counter()
        self.waiting: dict[int, tuple[int, Callable[[], None]]] = {}
        self.memories: dict[int, dict[str, Any]] = {member: {} for member in members}
        self.past: dict[int, dict[int, dict[int, Payload]]] = {member: {} for member in members}
        self._latest: tuple[Any, Tensor] | None = None

    def see(self, client: int, round_: int, payload: Payload) -> None:
        """A client has computed its update; one that has diverged is of no use."""
        if payload.is_finite:
            self._knowledge_of(client).add(client, round_, payload.vector)
        if round_ > min(self.rounds.values()):  # else every attacker is past it
            self.num_seen[round_] += 1
            self._wake(round_)

    def overhear(self, attacker: Client, message: Message) -> None:
        """A message has reached an attacker."""
        if self.plan.knowledge != "neighbourhood" or not self.plan.sees_honest:
            return
        if message.sender not in self.liars and message.payload.is_finite:
            self._knowledge_of(attacker.id).add(message.sender, message.round, message.payload.vector)
        if attacker.id in self.waiting and self.is_ready(attacker):
            self.waiting.pop(attacker.id)[1]()

    def is_active(self, attacker: Client) -> bool:
        """Whether it is time to attack."""
        moment = Moment(
            attacker.life.round,
            self.kernel.now,
            partitioned=bool(self.network.partitions),
            num_trusted=lambda: self._num_trusted(attacker),
        )
        return self.plan.schedule(moment)

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
        return self.num_seen[life.round] >= len(self.sees_updates_of)

    def notify(self, attacker: int, round_: int, wake: Callable[[], None]) -> None:
        """Call `wake` as soon as the adversary knows what it wants to know."""
        self.waiting[attacker] = (round_, wake)

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
        for recipient in recipients:
            for parcel in self._parcels(attacker, recipient, contents.get(recipient) or contents[None]):
                self._post(HeldBack(attacker, recipient, round_, parcel))

    def _sees_updates_of(self) -> frozenset[int]:
        """Whose updates it sees as soon as they are computed."""
        if self.plan.sees_honest and self.plan.knowledge == "omniscient":
            return frozenset(range(self.num_clients)) - self.liars
        if self.plan.sees_honest and self.plan.knowledge == "own":
            return self.members
        return frozenset()

    def _contents(self, attacker: Client, own: Payload) -> dict[int | None, Payload]:
        """What the attack wants to tell each recipient; None stands for all of them."""
        per_victim, equivocates = self.plan.sees_victim, self.plan.equivocation is not same
        if not per_victim and not equivocates:
            return {None: Payload(self._made_up(attacker, own, None))}
        contents: dict[int | None, Payload] = {}
        key = self.streams.key("equivocation", attacker.id)
        for recipient in attacker.neighbours:
            m = self._made_up(attacker, own, recipient)
            contents[recipient] = Payload(self.plan.equivocation(own.vector, m, uniform(key, recipient)))
        return contents

    def _made_up(self, attacker: Client, own: Payload, recipient: int | None) -> Tensor:
        """The attack's vector; with a recipient, the one for it."""
        plan, round_, knowledge = self.plan, attacker.life.round, self._knowledge_of(attacker.id)
        index = () if recipient is None else (recipient,)
        details: dict[str, Any] = {
            "round": round_,
            "seed": self.streams.key("attack", attacker.id, round_, *index),
            "memory": self.memories[attacker.id],
        }
        if not plan.sees_honest:
            return plan.attack(View(own.vector, **details))
        if not plan.sees_victim or recipient is None:
            candidates = sorted(knowledge.updates)
            num_byzantine = len(self.members) if plan.collude else 1
        else:
            around = self.clients[recipient].neighbours
            candidates = [client for client in around if client not in self.liars]
            num_byzantine = max(1, len(self.members.intersection(around)))
            own_update = knowledge.latest(recipient, round_)
            details["victim"] = None if own_update is None else own_update[1]
            if plan.knowledge == "omniscient":
                details["expected"] = self.expects(self.clients[recipient])
        ids, stamps, updates = knowledge.of(candidates, round_)
        basis = (ids, stamps, num_byzantine)
        if plan.collective and self._latest is not None and self._latest[0] == basis:
            return self._latest[1]
        seen = stacked(updates, otherwise=own.vector)
        m = plan.attack(View(own.vector, seen, ids, num_byzantine=num_byzantine, **details))
        self._latest = (basis, m)
        return m

    def _parcels(self, attacker: Client, recipient: int, payload: Payload) -> list[Parcel]:
        round_ = attacker.life.round
        past = self.past[attacker.id].setdefault(recipient, {})
        past[round_] = payload
        if len(past) > (MEMORY_ROUNDS if self.plan.remembers else 1):
            del past[min(past)]
        return self.plan.timing(
            Occasion(
                round=round_,
                recipient=recipient,
                now_s=self.kernel.now,
                deadline_s=self.clients[recipient].deadline_s(round_),
                past=past,
                key=self.streams.key("timing attack", attacker.id),
                num_clients=self.num_clients,
            )
        )

    def _post(self, held: HeldBack) -> None:
        if held.parcel.delay_s == 0:
            self._release(held)
        else:
            call = Call(lambda call: self._release(call.subject), held)
            self.kernel.post(call, self.kernel.now + held.parcel.delay_s)

    def _release(self, held: HeldBack) -> None:
        attacker, recipient, parcel = held.attacker, held.recipient, held.parcel
        if attacker.id not in self.network.down and recipient in attacker.neighbours:
            self.network.send(attacker.id, held.round, parcel.stamp, parcel.payload, (recipient,))

    def _knowledge_of(self, client: int) -> Knowledge:
        """Where what this client computes or hears is written down."""
        apart = not self.plan.collude and self.plan.knowledge != "omniscient"
        return self.alone[client] if apart else self.shared

    def _num_trusted(self, attacker: Client) -> int:
        neighbours = (self.clients[n].life.mailbox for n in attacker.neighbours if n not in self.liars)
        return sum(
            box.neighbours[attacker.id].num_used for box in neighbours if attacker.id in box.neighbours
        )

    def _wake(self, round_: int) -> None:
        if self.num_seen[round_] < len(self.sees_updates_of):
            return
        for attacker, (awaited, wake) in list(self.waiting.items()):
            if awaited == round_:
                del self.waiting[attacker]
                wake()

    def _advance(self, attacker: int, round_: int) -> None:
        """Note how far the attackers are: nobody will ask for what lies before the slowest."""
        before = min(self.rounds.values())
        self.rounds[attacker] = round_
        slowest = min(self.rounds.values())
        for past in range(before + 1, slowest + 1):
            del self.num_seen[past]
        self.shared.horizon = slowest
        self.alone[attacker].horizon = round_
