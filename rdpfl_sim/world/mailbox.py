"""A client's mailbox: bounded, one message per sender and round, closed to nonsense.

Every delivered message has exactly one fate: used, stale, duplicate, rejected, or left over at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from rdpfl_sim.maths.types import Form
from rdpfl_sim.world.message import Message
from rdpfl_sim.world.observer import Observer

Preference = Literal["round", "newest"]


@dataclass(slots=True)
class Correspondent:
    """What a mailbox knows of one neighbour: the messages that wait, by stamp, and its latest stamps."""

    held: dict[int, Message] = field(default_factory=dict)
    gone: int = 0
    """The latest round whose message was used, or has made room."""
    refused: int = 0
    """The latest round whose message was refused."""
    last_used: int = 0
    num_used: int = 0


class Mailbox:
    """Messages that wait to be used, and who has been heard in the round.

    A neighbour is *heard* for round t when its message for t is held, or when one for t or later has been
    used or has made room. It is *hopeless* when one for t or later was refused: nothing better will come.
    """

    STATE = ("neighbours", "former", "round", "num_heard", "silent", "fates")

    def __init__(
        self,
        neighbours: Iterable[int],
        observer: Observer,
        *,
        form: Form,
        last_round: int,
        capacity: int,
        prefer: Preference,
    ) -> None:
        self.observer = observer
        self.form = form
        self.last_round = last_round
        self.capacity = capacity
        self.prefer = prefer
        self.neighbours: dict[int, Correspondent] = {sender: Correspondent() for sender in neighbours}
        self.former: dict[int, Correspondent] = {}
        self.round = 1
        self.num_heard = 0
        self.silent: set[int] = set()
        """Neighbours that may still be heard in this round."""
        self.fates: Counter[str] = Counter()

    def call_the_roll(self, round_: int) -> None:
        """See who has been heard in this round."""
        self.round = round_
        self.num_heard = 0
        self.silent = set()
        for sender, they in self.neighbours.items():
            if round_ in they.held or they.gone >= round_:
                self.num_heard += 1
            elif they.refused < round_:
                self.silent.add(sender)

    def put(self, message: Message) -> bool:
        """Take a message in, or drop it and say why; whether one neighbour less is silent in this round."""
        sender, stamp, payload = message.sender, message.round, message.payload
        they = self.neighbours.get(sender)
        if they is None:
            known = sender in self.former
            self._drop(
                message, *(("stale", "no longer a neighbour") if known else ("rejected", "unknown sender"))
            )
            return False
        held = they.held
        if (
            they.last_used < stamp <= self.last_round
            and stamp not in held
            and payload.form == self.form
            and payload.is_finite
        ):
            held[stamp] = message
            if len(held) > self.capacity:
                self._discard(they, min(held), "made room for a newer one")
        else:
            self._turn_away(they, message)
        return sender in self.silent and self._settle(sender, they)

    def take(self, round_: int, max_age: int) -> list[Message]:
        """The messages to use in this round, at most one per sender, sorted by sender.

        Older messages of a sender whose newer one is used, and those past `max_age`, are stale.
        """
        taken = []
        for they in self.neighbours.values():
            held = they.held
            if not held:
                continue
            only_this_round = len(held) == 1 and round_ in held  # the common case, quickly
            stamp = round_ if only_this_round else self._choose(they, round_, max_age)
            if stamp is None:
                continue
            taken.append(held.pop(stamp))
            they.last_used = stamp
            they.num_used += 1
            if stamp > they.gone:
                they.gone = stamp
        if taken:
            self.fates["used"] += len(taken)
        return taken

    def meet(self, neighbours: Iterable[int]) -> None:
        """The neighbourhood changes: what former neighbours have sent is stale, but not forgotten."""
        known = {**self.former, **self.neighbours}
        self.neighbours = {sender: known.pop(sender, Correspondent()) for sender in sorted(neighbours)}
        self.former = known
        for they in self.former.values():
            for stamp in list(they.held):
                self._discard(they, stamp, "no longer a neighbour")

    def empty(self, reason: str) -> None:
        """Lose all that waits."""
        for they in self.neighbours.values():
            for stamp in list(they.held):
                self._discard(they, stamp, reason)

    def num_used_of(self, sender: int) -> int:
        """How many messages of a sender have been used, also if it is no longer a neighbour."""
        they = self.neighbours.get(sender) or self.former.get(sender)
        return 0 if they is None else they.num_used

    def leftovers(self) -> Iterator[Message]:
        """The messages that nobody has used yet."""
        for they in self.neighbours.values():
            yield from they.held.values()

    def _choose(self, they: Correspondent, round_: int, max_age: int) -> int | None:
        """The stamp of the message to use, if there is one; what is older than it, or too old, is dropped."""
        held = they.held
        for stamp in [stamp for stamp in held if round_ - stamp > max_age]:
            self._discard(they, stamp, "too old")
        if not held:
            return None
        past = [stamp for stamp in held if stamp <= round_]
        choice = max(held) if self.prefer == "newest" else max(past) if past else min(held)
        for stamp in [stamp for stamp in held if stamp < choice]:
            self._discard(they, stamp, "a later one is used")
        return choice

    def _settle(self, sender: int, they: Correspondent) -> bool:
        """Take a silent neighbour off the list if it has been heard, or if there is no hope."""
        if self.round in they.held or they.gone >= self.round:
            self.num_heard += 1
        elif they.refused < self.round:
            return False
        self.silent.discard(sender)
        return True

    def _turn_away(self, they: Correspondent, message: Message) -> None:
        """Drop a message that cannot be held."""
        stamp, payload = message.round, message.payload
        if not 1 <= stamp <= self.last_round:
            self._drop(message, "rejected", "no such round")
        elif payload.form != self.form:
            self._refuse(they, message, "wrong shape or type")
        elif not payload.is_finite:
            self._refuse(they, message, "not finite")
        elif stamp < they.last_used:
            self._drop(message, "stale", "a later one was used")
        else:
            self._drop(message, "duplicate", "same sender and round")

    def _discard(self, they: Correspondent, stamp: int, reason: str) -> None:
        they.gone = max(they.gone, stamp)
        self._drop(they.held.pop(stamp), "stale", reason)

    def _refuse(self, they: Correspondent, message: Message, reason: str) -> None:
        they.refused = max(they.refused, message.round)
        self._drop(message, "rejected", reason)

    def _drop(self, message: Message, fate: str, reason: str) -> None:
        self.fates[fate] += 1
        self.observer.message_dropped(message, fate, reason)
