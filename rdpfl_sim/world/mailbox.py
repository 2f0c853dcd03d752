"""A client's mailbox: at most one message per sender and round, bounded per sender.

Every delivered message has one outcome: used, stale, duplicate, rejected, or unread when the run ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from rdpfl_sim.methods.base import Form
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.observer import Observer

Preference = Literal["round", "newest"]
UNKNOWN_SENDER = "unknown sender"
NO_SUCH_ROUND = "no such round"
WRONG_FORM = "wrong shape or type"
NOT_FINITE = "not finite"
TOO_OLD = "too old"
MAILBOX_FULL = "mailbox full"
NEWER_CHOSEN = "newer message chosen"
NEWER_USED = "newer message already used"
FORMER_NEIGHBOUR = "no longer a neighbour"
RESTARTED = "recipient restarted with a new model"
SAME_ROUND = "same sender and round"


@dataclass(slots=True)
class SenderQueue:
    """Unread messages from one sender, by round, and the newest round of each outcome."""

    unread: dict[int, Message] = field(default_factory=dict)
    last_used: int = 0
    last_settled: int = 0
    """The newest round whose message was used or discarded."""
    last_rejected: int = 0
    num_used: int = 0

    def has_answered(self, round_: int) -> bool:
        """Return whether a message for this round is unread, or one for this or a later round was settled."""
        return round_ in self.unread or self.last_settled >= round_

    def take(self, round_: int) -> Message:
        """Remove the message for this round and mark it as used."""
        self.last_used = round_
        if round_ > self.last_settled:
            self.last_settled = round_
        self.num_used += 1
        return self.unread.pop(round_)


class Mailbox:
    """Collects messages, and calls `on_ready` when enough neighbours have answered in the current round.

    A neighbour whose message for the round was rejected has not answered, but is no longer pending,
    because no valid message is expected to follow.
    """

    STATE = (*("queues", "former_queues", "round", "num_required", "num_rejected", "pending", "outcomes"),)

    def __init__(
        self,
        neighbours: Iterable[int],
        observer: Observer,
        *,
        form: Form,
        num_rounds: int,
        capacity: int,
        prefer: Preference,
        num_required: int,
        on_ready: Callable[[], None],
    ) -> None:
        self.observer = observer
        self.form = form
        self.num_rounds = num_rounds
        self.capacity = capacity
        self.prefer = prefer
        self.num_required = num_required
        """Senders required before the round may proceed (fewer if no more can arrive)."""
        self.on_ready = on_ready
        self.queues = {sender: SenderQueue() for sender in neighbours}
        self.former_queues: dict[int, SenderQueue] = {}
        self.outcomes: Counter[str] = Counter()
        self.start_round(1)

    def start_round(self, round_: int) -> None:
        """Start a round, and determine which neighbours have already answered.

        Called when training ends or neighbours change. Messages that arrive earlier are kept.
        """
        self.round = round_
        self.pending: set[int] = set()
        self.num_rejected = 0
        for sender, queue in self.queues.items():
            if queue.has_answered(round_):
                continue
            if queue.last_rejected >= round_:
                self.num_rejected += 1
            else:
                self.pending.add(sender)

    @property
    def is_ready(self) -> bool:
        """Whether enough neighbours have answered, or none is pending."""
        if not self.pending:
            return True
        return len(self.queues) - len(self.pending) - self.num_rejected >= self.num_required

    def put(self, message: Message) -> None:
        """Store a message, or drop it and record the reason."""
        broadcast = message.broadcast
        sender, round_, payload = broadcast.sender, broadcast.round, broadcast.payload
        queue = self.queues.get(sender)
        if queue is None:
            self._drop_from_stranger(message)
            return
        is_new = queue.last_used < round_ <= self.num_rounds and round_ not in queue.unread
        if is_new and payload.form == self.form and payload.is_finite:
            queue.unread[round_] = message
            if len(queue.unread) > self.capacity:
                self._discard(queue, min(queue.unread), MAILBOX_FULL)
        else:
            self._drop(message, queue)
        if sender in self.pending:
            self._update_pending(sender, queue)

    def rejection_reason(self, message: Message) -> str | None:
        """Return the reason to reject a message, or None if it is valid.

        A valid message may still be stale or a duplicate.
        """
        sender, payload = message.sender, message.payload
        if sender not in self.queues and sender not in self.former_queues:
            return UNKNOWN_SENDER
        if not 1 <= message.round <= self.num_rounds:
            return NO_SUCH_ROUND
        if payload.form != self.form:
            return WRONG_FORM
        return None if payload.is_finite else NOT_FINITE

    def take(self, round_: int, max_age: int) -> list[Message]:
        """Return the messages to use in this round: at most one per sender, sorted by sender.

        Messages become stale if they are older than `max_age` rounds or older than the chosen one. A message
        of a later round is used only if there is no other usable message from its sender. It is not used
        again in its own round, in which its sender counts as having answered.
        """
        taken = []
        for queue in self.queues.values():
            chosen = self._choose(queue, round_, max_age)
            if chosen is not None:
                taken.append(queue.take(chosen))
        if taken:
            self.outcomes["used"] += len(taken)
        return taken

    def set_neighbours(self, neighbours: Iterable[int], num_required: int) -> None:
        """Change the neighbourhood. Unread messages from former neighbours become stale."""
        self.num_required = num_required
        queues = self.former_queues | self.queues
        self.queues = {sender: queues.pop(sender, SenderQueue()) for sender in sorted(neighbours)}
        self.former_queues = queues
        for queue in self.former_queues.values():
            self._discard_all(queue, FORMER_NEIGHBOUR)
        self.start_round(self.round)

    def clear(self, reason: str) -> None:
        """Discard all unread messages."""
        for queue in self.queues.values():
            self._discard_all(queue, reason)

    def num_used_from(self, sender: int) -> int:
        """Return the number of used messages from a sender, which may be a former neighbour."""
        queue = self.queues.get(sender) or self.former_queues.get(sender)
        return 0 if queue is None else queue.num_used

    def unread(self) -> Iterator[Message]:
        """Iterate over all unread messages."""
        for queue in self.queues.values():
            yield from queue.unread.values()

    def _choose(self, queue: SenderQueue, round_: int, max_age: int) -> int | None:
        """Return the round of the message to use. Discard older messages, or all if all are too old."""
        unread = queue.unread
        if len(unread) == 1 and round_ in unread:  # the common case
            return round_
        usable = [stamp for stamp in unread if stamp >= round_ - max_age]
        if not usable:
            self._discard_all(queue, TOO_OLD)
            return None
        due = [stamp for stamp in usable if stamp <= round_ or self.prefer == "newest"]
        chosen = max(due) if due else min(usable)
        self._discard_before(queue, chosen, NEWER_CHOSEN)
        return chosen

    def _update_pending(self, sender: int, queue: SenderQueue) -> None:
        if not queue.has_answered(self.round):
            if queue.last_rejected < self.round:
                return
            self.num_rejected += 1
        self.pending.remove(sender)
        if self.is_ready:
            self.on_ready()

    def _drop(self, message: Message, queue: SenderQueue) -> None:
        """Drop a neighbour's message that cannot be stored."""
        round_, reason = message.round, self.rejection_reason(message)
        if reason is not None:
            if 1 <= round_ <= self.num_rounds:
                queue.last_rejected = max(queue.last_rejected, round_)
            self._record(message, "rejected", reason)
        elif round_ < queue.last_used:
            self._record(message, "stale", NEWER_USED)
        else:
            self._record(message, "duplicate", SAME_ROUND)

    def _drop_from_stranger(self, message: Message) -> None:
        if message.sender in self.former_queues:
            self._record(message, "stale", FORMER_NEIGHBOUR)
        else:
            self._record(message, "rejected", UNKNOWN_SENDER)

    def _discard_before(self, queue: SenderQueue, round_: int, reason: str) -> None:
        for stamp in [stamp for stamp in queue.unread if stamp < round_]:
            self._discard(queue, stamp, reason)

    def _discard_all(self, queue: SenderQueue, reason: str) -> None:
        for stamp in list(queue.unread):
            self._discard(queue, stamp, reason)

    def _discard(self, queue: SenderQueue, round_: int, reason: str) -> None:
        queue.last_settled = max(queue.last_settled, round_)
        self._record(queue.unread.pop(round_), "stale", reason)

    def _record(self, message: Message, outcome: str, reason: str) -> None:
        self.outcomes[outcome] += 1
        self.observer.message_dropped(message, outcome, reason)
