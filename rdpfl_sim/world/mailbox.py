"""A client's mailbox: bounded, one message per sender and round, closed to nonsense.

Every delivered message has exactly one fate: used, stale, duplicate, rejected, or left over at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from torch import Size, dtype

from rdpfl_sim.world.message import Message
from rdpfl_sim.world.observer import Observer

Preference = Literal["round", "newest"]


class Mailbox:
    """Messages that wait to be used, by sender and round stamp.

    A neighbour is *heard* for round t when its message for t is held, or when one for t or later has been
    used or has made room. It is *hopeless* when one for t or later was refused: nothing better will come.
    """

    def __init__(
        self,
        neighbours: Iterable[int],
        observer: Observer,
        *,
        form: tuple[Size, dtype],
        last_round: int,
        capacity: int,
        prefer: Preference,
    ) -> None:
        self.observer = observer
        self.form = form
        self.last_round = last_round
        self.capacity = capacity
        self.prefer = prefer
        self.held: dict[int, dict[int, Message]] = {sender: {} for sender in neighbours}
        self.gone: dict[int, int] = dict.fromkeys(self.held, 0)
        self.refused: dict[int, int] = dict.fromkeys(self.held, 0)
        self.last_used: dict[int, int] = dict.fromkeys(self.held, 0)
        self.fates: Counter[str] = Counter()

    def put(self, message: Message) -> None:
        """Take a message in, or drop it and say why."""
        sender, stamp, payload = message.sender, message.round, message.payload
        if sender not in self.held:
            self._drop(message, "rejected", "unknown sender")
        elif not 1 <= stamp <= self.last_round:
            self._drop(message, "rejected", "no such round")
        elif payload.form != self.form:
            self._drop(message, "rejected", "wrong shape or type")
        elif not payload.is_finite:
            self._drop(message, "rejected", "not finite")
        elif stamp in self.held[sender] or stamp == self.last_used[sender]:
            self._drop(message, "duplicate", "same sender and round")
        elif stamp < self.last_used[sender]:
            self._drop(message, "stale", "a later one was used")
        else:
            held = self.held[sender]
            held[stamp] = message
            if len(held) > self.capacity:
                self._drop(held.pop(min(held)), "stale", "made room for a newer one")

    def take(self, round_: int, max_age: int) -> list[Message]:
        """The messages to use in this round, at most one per sender, sorted by sender.

        Older messages of a sender whose newer one is used, and those past `max_age`, are stale.
        """
        taken = []
        for sender, held in self.held.items():
            only_this_round = len(held) == 1 and round_ in held  # the common case, quickly
            stamp = round_ if only_this_round else self._choose(held, round_, max_age)
            if stamp is None:
                continue
            message = held.pop(stamp)
            self.last_used[sender] = stamp
            if stamp > self.gone[sender]:
                self.gone[sender] = stamp
            self.observer.message_used(message, round_)
            taken.append(message)
        if taken:
            self.fates["used"] += len(taken)
        return taken

    def heard(self, sender: int, round_: int) -> bool:
        """Whether the neighbour has said something valid for this round."""
        return round_ in self.held[sender] or self.gone[sender] >= round_

    def hopeless(self, sender: int, round_: int) -> bool:
        """Whether it is in vain to wait for this neighbour in this round."""
        return self.refused[sender] >= round_

    def roll_call(self, round_: int) -> tuple[int, set[int]]:
        """How many neighbours have been heard, and who may still say something for this round."""
        silent = {
            sender for sender, held in self.held.items() if round_ not in held and self.gone[sender] < round_
        }
        return len(self.held) - len(silent), {sender for sender in silent if self.refused[sender] < round_}

    def leftovers(self) -> Iterator[Message]:
        """The messages that nobody has used yet."""
        for held in self.held.values():
            yield from held.values()

    def _choose(self, held: dict[int, Message], round_: int, max_age: int) -> int | None:
        """The stamp of the message to use, if there is one; what is older than it, or too old, is dropped."""
        for stamp in [stamp for stamp in held if round_ - stamp > max_age]:
            self._drop(held.pop(stamp), "stale", "too old")
        if not held:
            return None
        past = [stamp for stamp in held if stamp <= round_]
        choice = max(held) if self.prefer == "newest" else max(past) if past else min(held)
        for stamp in [stamp for stamp in held if stamp < choice]:
            self._drop(held.pop(stamp), "stale", "a later one is used")
        return choice

    def _drop(self, message: Message, fate: str, reason: str) -> None:
        self.fates[fate] += 1
        if message.sender in self.held and 1 <= message.round <= self.last_round:
            marks = self.refused if fate == "rejected" else self.gone
            marks[message.sender] = max(marks[message.sender], message.round)
        self.observer.message_dropped(message, fate, reason)
