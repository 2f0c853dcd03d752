"""A client's mailbox: bounded, one message per sender and round, closed to nonsense.

Every delivered message has exactly one fate: used, stale, duplicate, rejected, or left over at the end.

Most rounds are *plain*: whatever comes is the message of the round from a neighbour that was silent so far.
As long as that is so, messages lie in one dictionary, by sender. At the first that is anything else they are
sorted in with the correspondence of their senders, by stamp, until a round begins with nothing left there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from rdpfl_sim.methods.payload import Form
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.observer import Observer

Preference = Literal["round", "newest"]
UNKNOWN_SENDER = "unknown sender"


def _nobody_waits() -> None:
    pass


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

    def use(self, stamp: int, num_used: int = 1) -> None:
        """A message with this stamp is used; with a number, also one in each of the rounds before it."""
        self.last_used = stamp
        self.gone = max(self.gone, stamp)
        self.num_used += num_used

    def is_ahead(self, round_: int) -> bool:
        """Whether anything waits, or this round or a later one is settled already."""
        return bool(self.held) or self.gone >= round_ or self.refused >= round_


class Mailbox:
    """Messages that wait to be used, and who has been heard in the round.

    A neighbour is *heard* for round t when its message for t is held, or when one for t or later has been
    used or has made room. It is *hopeless* when one for t or later was refused: nothing better will come.
    `on_enough` is called whenever a neighbour has been heard or is hopeless, and that is enough.
    """

    STATE = (
        *("neighbours", "former", "round", "num_needed", "num_hopeless", "silent", "fates"),
        *("plain_round", "present", "num_complete"),
    )

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
        self.num_needed: float = inf
        """How many neighbours have to be heard; it is enough, too, when nobody is left who might be."""
        self.num_hopeless = 0
        self.silent: set[int] = set(self.neighbours)
        """Neighbours that may still be heard in this round."""
        self.fates: Counter[str] = Counter()
        self.on_enough: Callable[[], None] = _nobody_waits
        self.plain_round: int | None = 1
        """The present round, if it is plain: nothing waits but the messages of it that are `present`."""
        self.present: dict[int, Message] = {}
        self.num_complete = 0
        """How many plain rounds in a row, up to the last, have used messages of all neighbours."""

    @property
    def num_heard(self) -> int:
        """How many neighbours have been heard in this round."""
        return len(self.neighbours) - len(self.silent) - self.num_hopeless

    @property
    def has_enough(self) -> bool:
        """Whether enough neighbours have been heard, or nobody is left to wait for."""
        num_heard = len(self.neighbours) - len(self.silent) - self.num_hopeless
        return not self.silent or num_heard >= self.num_needed

    def call_the_roll(self, round_: int) -> None:
        """See who has been heard in this round."""
        if round_ == self.plain_round:
            return
        self._sort_in()
        self.round, self.num_hopeless, self.silent = round_, 0, set()
        for sender, they in self.neighbours.items():
            if round_ not in they.held and they.gone < round_:
                if they.refused < round_:
                    self.silent.add(sender)
                else:
                    self.num_hopeless += 1

    def put(self, message: Message) -> None:
        """Take a message in, or drop it and say why."""
        broadcast = message.broadcast
        sender = broadcast.sender
        if broadcast.round == self.plain_round and sender in self.silent and broadcast.form == self.form:
            present = self.present
            present[sender] = message
            self.silent.remove(sender)
            if len(present) >= self.num_needed:
                self.on_enough()
        elif sender in self.neighbours:
            self._sort_in()
            self._put(message, self.neighbours[sender])
        elif sender in self.former:
            self._drop(message, "stale", "no longer a neighbour")
        else:
            self._drop(message, "rejected", UNKNOWN_SENDER)

    def why_rejected(self, message: Message) -> str | None:
        """Return why a message cannot be part of the protocol, or None if it can.

        A message that passes may still be stale, or a duplicate.
        """
        sender, payload = message.sender, message.payload
        if sender not in self.neighbours and sender not in self.former:
            return UNKNOWN_SENDER
        if not 1 <= message.round <= self.last_round:
            return "no such round"
        if payload.form != self.form:
            return "wrong shape or type"
        return None if payload.is_finite else "not finite"

    def take(self, round_: int, max_age: int) -> list[Message]:
        """The messages to use in this round, at most one per sender, sorted by sender.

        Older messages of a sender whose newer one is used, and those past `max_age`, are stale.
        """
        taken = self._take_present() if round_ == self.plain_round else self._take(round_, max_age)
        if taken:
            self.fates["used"] += len(taken)
        return taken

    def meet(self, neighbours: Iterable[int]) -> None:
        """The neighbourhood changes: what former neighbours have sent is stale, but not forgotten."""
        self._sort_in()
        known = {**self.former, **self.neighbours}
        self.neighbours = {sender: known.pop(sender, Correspondent()) for sender in sorted(neighbours)}
        self.former = known
        for they in self.former.values():
            for stamp in list(they.held):
                self._discard(they, stamp, "no longer a neighbour")
        self.call_the_roll(self.round)

    def empty(self, reason: str) -> None:
        """Lose all that waits."""
        self._sort_in()
        for they in self.neighbours.values():
            for stamp in list(they.held):
                self._discard(they, stamp, reason)

    def num_used_of(self, sender: int) -> int:
        """How many messages of a sender have been used, also if it is no longer a neighbour."""
        if sender in self.neighbours:
            return self.neighbours[sender].num_used + self.num_complete
        return self.former[sender].num_used if sender in self.former else 0

    def leftovers(self) -> Iterator[Message]:
        """The messages that nobody has used yet."""
        yield from self.present.values()
        for they in self.neighbours.values():
            yield from they.held.values()

    def _begin_plain(self, round_: int) -> None:
        """Begin a round of which nothing has come yet, and nothing of another one is left."""
        self.round = self.plain_round = round_
        self.silent, self.num_hopeless = set(self.neighbours), 0
        if round_ > self.last_round:
            self._sort_in()

    def _take_present(self) -> list[Message]:
        """All that has come, in a round that was plain to its end."""
        present, neighbours, round_ = self.present, self.neighbours, self.round
        if len(present) == len(neighbours):
            taken = list(map(present.__getitem__, neighbours))
            self.num_complete += 1
        else:
            taken = [present[sender] for sender in neighbours if sender in present]
            self._write_up()
            for sender in present:
                neighbours[sender].use(round_)
        self.present = {}
        self._begin_plain(round_ + 1)
        return taken

    def _write_up(self) -> None:
        """Enter the complete rounds, up to the last one, into the correspondence with every neighbour."""
        if self.num_complete > 0:
            for they in self.neighbours.values():
                they.use(self.round - 1, self.num_complete)
            self.num_complete = 0

    def _sort_in(self) -> None:
        """The round is not plain, or no longer: leave nothing apart."""
        if self.plain_round is None:
            return
        self._write_up()
        for sender, message in self.present.items():
            self.neighbours[sender].held[self.round] = message
        self.present = {}
        self.plain_round = None

    def _put(self, message: Message, they: Correspondent) -> None:
        """Take in what a neighbour has sent, or turn it away."""
        stamp, held = message.round, they.held
        is_new = they.last_used < stamp <= self.last_round and stamp not in held
        if is_new and message.broadcast.form == self.form:
            held[stamp] = message
            if len(held) > self.capacity:
                self._discard(they, min(held), "made room for a newer one")
        else:
            self._turn_away(they, message)
        if message.sender in self.silent and self._settle(message.sender, they) and self.has_enough:
            self.on_enough()

    def _take(self, round_: int, max_age: int) -> list[Message]:
        """What to use of the correspondence with each neighbour."""
        self._sort_in()
        taken = []
        for they in self.neighbours.values():
            stamp = self._choose(they, round_, max_age)
            if stamp is not None:
                taken.append(they.held.pop(stamp))
                they.use(stamp)
        if not any(they.is_ahead(round_ + 1) for they in self.neighbours.values()):
            self._begin_plain(round_ + 1)
        return taken

    def _choose(self, they: Correspondent, round_: int, max_age: int) -> int | None:
        """The stamp of the message to use, if there is one; what is older than it, or too old, is dropped."""
        held = they.held
        if len(held) == 1 and round_ in held:
            return round_
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
        if self.round not in they.held and they.gone < self.round:
            if they.refused < self.round:
                return False
            self.num_hopeless += 1
        self.silent.discard(sender)
        return True

    def _turn_away(self, they: Correspondent, message: Message) -> None:
        """Drop a message that cannot be held."""
        stamp, reason = message.round, self.why_rejected(message)
        if reason is not None:
            if 1 <= stamp <= self.last_round:
                they.refused = max(they.refused, stamp)
            self._drop(message, "rejected", reason)
        elif stamp < they.last_used:
            self._drop(message, "stale", "a later one was used")
        else:
            self._drop(message, "duplicate", "same sender and round")

    def _discard(self, they: Correspondent, stamp: int, reason: str) -> None:
        they.gone = max(they.gone, stamp)
        self._drop(they.held.pop(stamp), "stale", reason)

    def _drop(self, message: Message, fate: str, reason: str) -> None:
        self.fates[fate] += 1
        self.observer.message_dropped(message, fate, reason)
