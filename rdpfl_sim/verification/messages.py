"""Checks of message records, from sending a message until it is used or dropped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rdpfl_sim.records.record_types import (
    FaultRecord,
    MessageCopied,
    MessageDelivered,
    MessageDropped,
    MessageRecord,
    MessageSent,
    MessageUsed,
)
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Checks
from rdpfl_sim.verification.clients import ClientChecks, ClientPhase
from rdpfl_sim.world import mailbox
from rdpfl_sim.world.network import obstacles, transport
from rdpfl_sim.world.network.network import LOSS

FINAL_REJECTIONS = (mailbox.NOT_FINITE, mailbox.WRONG_FORM)
"""Reasons for rejection after which the recipient stops waiting for the sender in that round."""

OBSTACLES = {
    obstacles.LINK_IS_DOWN: "the link from {0} to {1} is down",
    obstacles.PARTITION: "{0} and {1} are on different sides of a partition",
    obstacles.RECIPIENT_DOWN: "{1} is down",
}
"""Reasons for the loss of a message due to faults; of several, the first is recorded."""


class TrackedMessage(NamedTuple):
    """A message in transit or in a mailbox."""

    sender: int
    recipient: int
    stamp: int
    sent_at_s: float | None
    """None for a copy whose original is not recorded."""
    place: tuple[int, int]
    """The order on the link: the sender's round and the number of the message or its original."""


@dataclass
class TrackedInbox:
    """The state of one client's mailbox for one sender."""

    held: dict[int, int] = field(default_factory=dict)
    """The stamps of the messages in the mailbox, by message number."""
    last_removed: int = 0
    """The latest stamp that was used or became stale."""
    last_used: int = 0
    last_rejected: int = 0


class MessageChecks:
    """Follows every message over its link into a mailbox, and checks each step."""

    def __init__(
        self,
        checks: Checks,
        scenario: Scenario,
        clients: ClientChecks,
        byzantine: frozenset[int],
        is_recorded: Callable[[int], bool],
    ) -> None:
        self.numbering = checks["numbering"]
        self.outcomes = checks["outcomes"]
        self.causality = checks["causality"]
        self.links = checks["links"]
        self.stamps = checks["stamps"]
        self.reasons = checks["reasons"]
        timing = scenario.timing
        self.retransmits: bool = scenario.network.transport.bind()().retransmits
        self.last_round, self.capacity = scenario.rounds, timing.mailbox_per_sender
        self.max_age: int = timing.staleness.bind()().max_age
        self.clients, self.byzantine, self.is_recorded = clients, byzantine, is_recorded
        self.next_number = 0
        self.in_transit: dict[int, TrackedMessage] = {}
        self.in_mailbox: dict[int, TrackedMessage] = {}
        self.inboxes: list[dict[int, TrackedInbox]] = [defaultdict(TrackedInbox) for _ in clients.states]
        self.counts: Counter[str] = Counter()
        self.num_bytes = 0.0
        """The bytes of all messages, each sent once."""
        self.num_reordered = 0
        self.newest: dict[tuple[int, int], tuple[int, int]] = {}
        """The place of the newest message that each link has delivered."""
        self.restarted_at_s: dict[int, float] = {}
        """The times at which clients last recovered with a new model and an empty mailbox."""

    def message_sent(self, record: MessageSent, line: int) -> None:
        """Check the number, link and stamp of a new message."""
        number, sender, recipient = record["message"], record["sender"], record["recipient"]
        stamp, true_round, time_s = record["round"], record["true_round"], record["time_s"]
        self._begin(number, line, "sent")
        clients, state = self.clients, self.clients.states[sender]
        self.links.num_items += 1
        if recipient not in clients.neighbours[sender]:
            self.links.violated(line, f"{recipient} is not a neighbour of {sender}")
        if sender in clients.timeline.stopped:
            self.links.violated(line, f"the sender {sender} is down")
        self.stamps.num_items += 1
        if true_round != state.round:
            self.stamps.violated(line, f"client {sender} is in round {state.round}, not {true_round}")
        elif sender not in self.byzantine:
            if stamp != true_round:
                self.stamps.violated(
                    line, f"honest client {sender} stamped a message with round {stamp} in round {true_round}"
                )
            if state.phase is not ClientPhase.GATHERING or state.time_s != time_s:
                self.stamps.violated(line, f"honest client {sender} did not finish its training at this time")
        self.num_bytes += record["size_bytes"]
        self.in_transit[number] = TrackedMessage(sender, recipient, stamp, time_s, (true_round, number))

    def message_copied(self, record: MessageCopied, line: int) -> None:
        """Check that the original of a copy is in transit."""
        number, original = record["message"], record["original"]
        self._begin(number, line, "copied")
        message = self.in_transit.get(original)
        if message is None:
            if self.is_recorded(original):
                self.outcomes.violated(line, f"message {original} is copied, but is not in transit")
            message = TrackedMessage(
                record["sender"], record["recipient"], record["round"], None, (0, number)
            )
        self.in_transit[number] = message
        self._compare(record, line, message)

    def message_lost(self, record: MessageDropped, line: int) -> None:
        """Check the reason for a loss."""
        message = self._end(record, line, self.in_transit, "lost", "in transit")
        if message is None:
            return
        self.reasons.num_items += 1
        expected = [transport.ALL_FAILED if self.retransmits else self._obstacle(message) or LOSS]
        if self.clients.stopped_at_s.get(message.sender) == record["time_s"]:
            expected.append(transport.SENDER_DOWN)  # the message may have been queued at its sender
        if record["reason"] not in expected:
            self.reasons.violated(
                line, f"the reason for message {record['message']} must be: {' or '.join(expected)}"
            )

    def message_delivered(self, record: MessageDelivered, line: int) -> None:
        """Check delay and obstacles of a delivery, and put the message into the mailbox."""
        message = self._end(record, line, self.in_transit, "delivered", "in transit")
        if message is None:
            return
        number, recipient = record["message"], message.recipient
        self.causality.num_items += 1
        delay_s, sent_at_s = record["delay_s"], message.sent_at_s
        if sent_at_s is not None and (delay_s < 0 or delay_s != record["time_s"] - sent_at_s):
            self.causality.violated(
                line, f"message {number} was sent at {sent_at_s} s: its delay is not {delay_s} s"
            )
        self.links.num_items += 1
        obstacle = self._obstacle(message)
        if obstacle is not None:
            expected = OBSTACLES[obstacle].format(message.sender, recipient)
            self.links.violated(line, f"message {number} arrives although {expected}")
        link = message.sender, recipient
        if message.place >= self.newest.get(link, (0, 0)):
            self.newest[link] = message.place
        else:
            self.num_reordered += 1
        self.in_mailbox[number] = message
        if message.sender in self.clients.neighbours[recipient]:
            self.inboxes[recipient][message.sender].held[number] = message.stamp

    def message_used(self, record: MessageUsed, line: int) -> None:
        """Remove a used message from its mailbox."""
        self._leave_mailbox(record, line, "used").last_used = record["round"]

    def message_stale(self, record: MessageDropped, line: int) -> None:
        """Check the reason for dropping a message as stale."""
        self._check_reason(record, line, STALE)
        self._leave_mailbox(record, line, "stale")

    def message_duplicate(self, record: MessageDropped, line: int) -> None:
        """Check that another message has the same sender and round."""
        self._check_reason(record, line, DUPLICATE)
        self._leave_mailbox(record, line, "duplicate")

    def message_rejected(self, record: MessageDropped, line: int) -> None:
        """Check the reason for rejecting a message."""
        self._check_reason(record, line, REJECTED)
        inbox = self._leave_mailbox(record, line, "rejected")
        if record["reason"] in FINAL_REJECTIONS:
            inbox.last_rejected = max(inbox.last_rejected, record["round"])

    def fault(self, record: FaultRecord, line: int) -> None:
        """Record the times at which clients restart with a new model."""
        if record.get("fresh"):
            self.restarted_at_s.update(dict.fromkeys(record["clients"], record["time_s"]))

    def _begin(self, number: int, line: int, what: str) -> None:
        self.counts[what] += 1
        self.numbering.num_items += 1
        if number < self.next_number:
            self.numbering.violated(line, f"message {number} follows message {self.next_number - 1}")
            return
        missing = next(filter(self.is_recorded, range(self.next_number, number)), None)
        if missing is not None:
            self.numbering.violated(line, f"message {missing} is missing before {number}")
        if not self.is_recorded(number):
            self.numbering.violated(line, f"message {number} is not in the sample of recorded messages")
        self.next_number = number + 1

    def _end(
        self, record: MessageRecord, line: int, place: dict[int, TrackedMessage], outcome: str, before: str
    ) -> TrackedMessage | None:
        """Check that a message is in `place` and has not changed, then remove it."""
        self.counts[outcome] += 1
        self.outcomes.num_items += 1
        message = place.pop(record["message"], None)
        if message is None:
            self.outcomes.violated(line, f"message {record['message']} is {outcome}, but was not {before}")
            return None
        self._compare(record, line, message)
        return message

    def _compare(self, record: MessageRecord, line: int, message: TrackedMessage) -> None:
        if (record["sender"], record["recipient"], record["round"]) != message[:3]:
            expected = f"from {message.sender} to {message.recipient}, of round {message.stamp}"
            self.outcomes.violated(line, f"message {record['message']} was sent {expected}")

    def _leave_mailbox(self, record: MessageRecord, line: int, outcome: str) -> TrackedInbox:
        self._end(record, line, self.in_mailbox, outcome, "delivered")
        inbox = self.inboxes[record["recipient"]][record["sender"]]
        was_held = inbox.held.pop(record["message"], None) is not None
        if was_held and outcome in ("used", "stale"):
            inbox.last_removed = max(inbox.last_removed, record["round"])
        return inbox

    def _obstacle(self, message: TrackedMessage) -> str | None:
        sender, recipient = message.sender, message.recipient
        timeline = self.clients.timeline
        if (sender, recipient) in timeline.links_down:
            return obstacles.LINK_IS_DOWN
        if timeline.is_partitioned(sender, recipient):
            return obstacles.PARTITION
        return obstacles.RECIPIENT_DOWN if recipient in timeline.stopped else None

    def _check_reason(self, record: MessageDropped, line: int, allowed: Mapping[str, DropReason]) -> None:
        """Check that a reason is valid for the outcome and possible, before the message is removed."""
        self.reasons.num_items += 1
        sender, recipient = record["sender"], record["recipient"]
        inbox, reason = self.inboxes[recipient][sender], record["reason"]
        drop = DroppedMessage(
            stamp=record["round"],
            round=self.clients.states[recipient].round,
            is_neighbour=sender in self.clients.neighbours[recipient],
            others=[stamp for number, stamp in inbox.held.items() if number != record["message"]],
            last_used=inbox.last_used,
            has_restarted=self.restarted_at_s.get(recipient) == record["time_s"],
            last_round=self.last_round,
            max_age=self.max_age,
            capacity=self.capacity,
        )
        if reason not in allowed:
            self.reasons.violated(line, f"unknown reason for this outcome: {reason}")
        elif not allowed[reason](drop):
            self.reasons.violated(line, f"the reason for message {record['message']} cannot be: {reason}")


class DroppedMessage(NamedTuple):
    """A message that is dropped, with the state of its recipient."""

    stamp: int
    round: int
    """The round of the recipient."""
    is_neighbour: bool
    others: list[int]
    """The stamps of the other messages from the same sender in the mailbox."""
    last_used: int
    has_restarted: bool
    last_round: int
    max_age: int
    capacity: int

    @property
    def is_possible(self) -> bool:
        """Whether the message comes from a neighbour and its stamp is an existing round."""
        return self.is_neighbour and 1 <= self.stamp <= self.last_round

    @property
    def is_too_old(self) -> bool:
        """Whether all messages from the sender are older than the scenario allows in this round."""
        return self.round - max([self.stamp, *self.others]) > self.max_age


DropReason: TypeAlias = Callable[[DroppedMessage], bool]
"""Returns whether a reason is possible for a dropped message."""

STALE: Mapping[str, DropReason] = {
    mailbox.FORMER_NEIGHBOUR: lambda drop: not drop.is_neighbour,
    mailbox.RESTARTED: lambda drop: drop.is_neighbour and drop.has_restarted,
    mailbox.TOO_OLD: lambda drop: drop.is_possible and drop.is_too_old,
    mailbox.MAILBOX_FULL: lambda drop: (
        drop.is_possible and len(drop.others) >= drop.capacity and drop.stamp < min(drop.others)
    ),
    mailbox.NEWER_CHOSEN: lambda drop: (
        drop.is_possible and not drop.is_too_old and drop.stamp < max(drop.others, default=0)
    ),
    mailbox.NEWER_USED: lambda drop: drop.is_possible and drop.stamp < drop.last_used,
}
DUPLICATE: Mapping[str, DropReason] = {
    mailbox.SAME_ROUND: lambda drop: (
        drop.is_possible and (drop.stamp == drop.last_used or drop.stamp in drop.others)
    ),
}
REJECTED: Mapping[str, DropReason] = {
    mailbox.UNKNOWN_SENDER: lambda drop: not drop.is_neighbour,
    mailbox.NO_SUCH_ROUND: lambda drop: drop.is_neighbour and not drop.is_possible,
    **dict.fromkeys(FINAL_REJECTIONS, lambda drop: drop.is_possible),
}
