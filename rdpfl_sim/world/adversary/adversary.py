"""The adversary: observations of a group of Byzantine clients, and content and timing of their messages."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rdpfl_sim.attacks import Attack, View
from rdpfl_sim.attacks.equivocation import Equivocation, same
from rdpfl_sim.errors import note_client_round
from rdpfl_sim.inputs import call_read_only
from rdpfl_sim.methods.base import Method, Payload
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.world.adversary.schedules import AttackSchedule, ScheduleView, always
from rdpfl_sim.world.adversary.threat_model import Level, observed_clients
from rdpfl_sim.world.adversary.timing import (
    MEMORY_ROUNDS,
    ScheduledMessage,
    TimingAttack,
    TimingView,
    immediate,
)
from rdpfl_sim.world.kernel import Call, Kernel
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.network.network import Network

if TYPE_CHECKING:
    from rdpfl_sim.world.client import Client

OBSERVED_ROUNDS = 16
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
        if len(updates) > OBSERVED_ROUNDS:
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


@dataclass(frozen=True)
class Plan:
    """The attack of a group of Byzantine clients.

    `knowledge` selects the updates that they observe: only their own, also those they receive as messages, or
    all honest updates as soon as they are computed. Attackers that collude share their observations.
    """

    attack: Attack
    sees_honest: bool = False
    sees_victim: bool = False
    poisons_labels: bool = False
    collective: bool = False
    """Whether the attack gives the same vector for every attacker."""
    timing: TimingAttack = immediate
    remembers: bool = False
    """Whether the timing attack sends messages of earlier rounds."""
    schedule: AttackSchedule = always
    equivocation: Equivocation = same
    knowledge: Level = "omniscient"
    collude: bool = True
    patience_s: float | None = None
    """Maximum time that an attacker waits for the updates it needs; None for no limit."""


@dataclass(frozen=True)
class DelayedMessage:
    """A message that an attacker sends later."""

    attacker: int
    recipient: int
    message: ScheduledMessage
    num_stops: int
    """The sender's stop count at scheduling; a later stop discards the message."""


class Adversary:
    """Controls a group of Byzantine clients.

    Causality holds: an update is observed when its client has computed it or when it arrives as a message. An
    attacker that needs updates of its own round waits for them, but at most `patience_s`. It then uses the
    latest observed update of every client.
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
        byzantine: Collection[int],
        kernel: Kernel,
        network: Network,
        clients: Sequence[Client],
        streams: Streams,
        method: Method,
    ) -> None:
        self.plan = plan
        self.members = frozenset(members)
        self.byzantine = frozenset(byzantine)
        self.kernel = kernel
        self.network = network
        self.num_clients = len(network.links)
        self.clients = clients
        self.streams = streams
        self.method = method
        self.observed_clients = (
            observed_clients(plan.knowledge, self.members, self.byzantine, self.num_clients)
            if plan.sees_honest
            else frozenset()
        )
        self.rounds = dict.fromkeys(members, 0)
        self.shared = Observations()
        self.alone = {member: Observations() for member in members}
        self.seen_in: dict[int, set[int]] = {}
        """Clients whose update has been observed, by round, for rounds that attackers still wait for."""
        self.waiting: dict[int, None] = {}
        """Attackers that wait for observations, in order of the start of their wait."""
        self.memories: dict[int, dict[str, Any]] = {member: {} for member in members}
        self.past: dict[int, dict[int, dict[int, Payload]]] = {member: {} for member in members}
        self.num_stops: Counter[int] = Counter()
        self._slowest: float = 0
        self._latest: tuple[list[Tensor], Tensor | None] = ([], None)

    def on_payload(self, client: int, round_: int, payload: Payload) -> None:
        """Observe a payload at the end of a local training. Diverged payloads are not stored."""
        if payload.is_finite:
            self._observations_of(client).add(client, round_, payload.vector)
        if round_ > self._slowest:  # otherwise every attacker has passed this round
            self.seen_in.setdefault(round_, set()).add(client)
            self.recheck_waiting()

    def on_message(self, attacker: Client, message: Message) -> None:
        """Observe a message that has reached an attacker, unless the attacker's mailbox rejects it."""
        if self.plan.knowledge != "neighbourhood" or not self.plan.sees_honest:
            return
        if message.sender not in self.byzantine and attacker.mailbox.rejection_reason(message) is None:
            self._observations_of(attacker.id).add(message.sender, message.round, message.payload.vector)
        self.recheck_waiting()

    def is_active(self, attacker: Client) -> bool:
        """Return whether the attack is active now."""
        moment = ScheduleView(
            attacker.state.round,
            self.kernel.now,
            partitioned=bool(self.network.obstacles.partitions),
            num_trusted=lambda: self._num_trusted(attacker),
        )
        try:
            return self.plan.schedule(moment)
        except Exception as error:  # the current event may belong to a different client
            note_client_round(error, attacker.id, attacker.state.round)
            raise

    def poisons(self, attacker: Client) -> bool:
        """Return whether the attacker trains on poisoned data in this round."""
        return self.plan.poisons_labels and self.is_active(attacker)

    def is_ready(self, attacker: Client) -> bool:
        """Return whether the attacker has observed all updates that its message of this round depends on."""
        plan, state = self.plan, attacker.state
        if not plan.sees_honest or not self.is_active(attacker):
            return True
        if plan.knowledge == "neighbourhood":
            return attacker.mailbox.pending <= self.byzantine
        if plan.knowledge == "own" and not plan.collude:
            return True
        return self._has_seen_all(state.round)

    def recheck_waiting(self) -> None:
        """Resume waiting attackers that have now observed enough."""
        for attacker in [member for member in self.waiting if self.is_ready(self.clients[member])]:
            del self.waiting[attacker]
            self.clients[attacker].stop_waiting()

    def on_stop(self, attacker: int) -> None:
        """Cancel the wait of an attacker that has stopped. Its delayed messages are lost."""
        self.waiting.pop(attacker, None)
        self.num_stops[attacker] += 1

    def on_departure(self, attacker: int) -> None:
        """Stop keeping observations for an attacker that has left permanently."""
        del self.rounds[attacker]
        self._slowest = min(self.rounds.values(), default=inf)

    def send(self, attacker: Client, own: Payload) -> None:
        """Send the attacker's messages of this round."""
        round_, recipients = attacker.state.round, attacker.neighbours
        self.waiting.pop(attacker.id, None)  # still listed if the wait has timed out
        self._advance(attacker.id, round_)
        if not self.is_active(attacker):
            self.network.send(attacker.id, round_, own, recipients)
            return
        contents = self._contents(attacker, own)
        if self.plan.timing is immediate and contents.keys() == {None}:
            self.network.send(attacker.id, round_, contents[None], recipients)
            return
        for recipient in self.network.send_order(recipients, round_):
            content = contents.get(recipient) or contents[None]
            for message in self._schedule_messages(attacker, recipient, content):
                self._send_delayed(
                    DelayedMessage(attacker.id, recipient, message, self.num_stops[attacker.id])
                )

    def _contents(self, attacker: Client, own: Payload) -> dict[int | None, Payload]:
        """Return the payload for each recipient; the key None means all recipients."""
        plan = self.plan
        to_all = None if plan.sees_victim else self._attack_vector(attacker, own, None)
        if to_all is not None and plan.equivocation is same:
            return {None: Payload(to_all, own.mask)}
        contents: dict[int | None, Payload] = {}
        key = self.streams.key("equivocation", attacker.id)
        for recipient in attacker.neighbours:
            m = self._attack_vector(attacker, own, recipient) if to_all is None else to_all
            vector = call_read_only(plan.equivocation, own.vector, m, uniform(key, recipient))
            contents[recipient] = Payload(vector, own.mask)
        return contents

    def _attack_vector(self, attacker: Client, own: Payload, recipient: int | None) -> Tensor:
        """Return the vector that the attack computes, for all recipients or for one."""
        plan, round_, observations = self.plan, attacker.state.round, self._observations_of(attacker.id)
        index = () if recipient is None else (recipient,)
        details: dict[str, Any] = {
            "round": round_,
            "seed": self.streams.key("attack", attacker.id, round_, *index),
            "memory": self.memories[attacker.id],
            "origin": _only_row(self.method.reference_point(attacker.state.learning)),
        }
        if not plan.sees_honest:
            return self._attack(attacker, View(own.vector, **details))
        candidates, allies = sorted(observations.updates), self.members
        if recipient is not None:
            around = self.clients[recipient].neighbours
            allies = self.members.intersection(around)
            if plan.knowledge != "own":
                candidates = [client for client in around if client not in self.byzantine]
            details["victim"] = observations.latest(recipient, round_)
            if plan.knowledge == "omniscient":
                expected = _only_row(self.method.predicted_direction(self.clients[recipient].state.learning))
                details["expected"] = None if expected is None or expected.isnan().any() else expected
        ids, updates = observations.of(candidates, round_)
        cached = self._cached_vector(updates) if plan.collective else None
        if cached is not None:
            return cached
        seen = stacked(updates, otherwise=own.vector)
        num_byzantine = max(1, len(allies)) if plan.collude else 1
        m = self._attack(attacker, View(own.vector, seen, ids, num_byzantine=num_byzantine, **details))
        self._latest = (updates, m)
        return m

    def _attack(self, attacker: Client, view: View) -> Tensor:
        """Return the vector of the attack. The memory is copied, because messages may share its tensors."""
        m = call_read_only(self.plan.attack, view)
        self.memories[attacker.id] = deepcopy(view.memory)
        return m

    def _cached_vector(self, updates: list[Tensor]) -> Tensor | None:
        """Return the last vector of the attack if it was computed from exactly these updates."""
        known, m = self._latest
        equal = len(known) == len(updates) > 0 and all(map(operator.is_, known, updates))
        return m if equal else None

    def _schedule_messages(
        self, attacker: Client, recipient: int, payload: Payload
    ) -> list[ScheduledMessage]:
        round_ = attacker.state.round
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

    def _send_delayed(self, delayed: DelayedMessage) -> None:
        if delayed.message.delay_s == 0:
            self._release(delayed)
        else:
            self.kernel.call_at(Call(self._on_time, delayed), self.kernel.now + delayed.message.delay_s)

    def _on_time(self, call: Call) -> None:
        self._release(call.argument)

    def _release(self, delayed: DelayedMessage) -> None:
        attacker, recipient, message = self.clients[delayed.attacker], delayed.recipient, delayed.message
        survives = (
            delayed.num_stops == self.num_stops[attacker.id]
            and attacker.id not in self.network.obstacles.clients_down
        )
        if survives and recipient in attacker.neighbours:
            self.network.send(
                attacker.id, attacker.state.round, message.payload, (recipient,), stamp=message.stamp
            )

    def _observations_of(self, client: int) -> Observations:
        """Return the observations that this client contributes to and uses."""
        apart = not self.plan.collude and self.plan.knowledge != "omniscient"
        return self.alone[client] if apart else self.shared

    def _num_trusted(self, attacker: Client) -> int:
        mine = attacker.mailbox
        others = (n for n in (*mine.queues, *mine.former_queues) if n not in self.byzantine)
        return sum(self.clients[other].mailbox.num_used_from(attacker.id) for other in others)

    def _has_seen_all(self, round_: int) -> bool:
        """Return whether the updates of all running clients have been observed; true for past rounds."""
        seen, down = self.seen_in.get(round_, set()), self.network.obstacles.clients_down
        if round_ <= self._slowest or len(seen) + len(down) < len(self.observed_clients):
            return round_ <= self._slowest
        return all(client in seen or client in down for client in self.observed_clients)

    def _advance(self, attacker: int, round_: int) -> None:
        """Record the attacker's round, and discard observations of rounds that every attacker has passed."""
        self.rounds[attacker] = round_
        self._slowest = min(self.rounds.values())
        for past in [past for past in self.seen_in if past <= self._slowest]:
            del self.seen_in[past]
        self.shared.horizon = self._slowest
        self.alone[attacker].horizon = round_


def _only_row(rows: Tensor | None) -> Tensor | None:
    return None if rows is None else rows[0]
