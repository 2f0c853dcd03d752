"""Checks of message records, from sending a message until it is used or dropped."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

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

    def clear(self) -> None:
        """Remove all messages, which become stale."""
        self.last_removed = max([self.last_removed, *self.held.values()])
        self.held.clear()


class MessageChecks:
    """Follows every message over its link into a mailbox, and checks each step."""

    def __init__(
        self, checks: Checks, scenario: Scenario, clients: ClientChecks, byzantine: frozenset[int]
    ) -> None:
        self.outcomes = checks["outcomes"]
        self.causality = checks["causality"]
        self.links = checks["links"]
        self.stamps = checks["stamps"]
        self.reasons = checks["reasons"]
        timing = scenario.timing
        self.retransmits: bool = scenario.network.transport.bind()().retransmits
        self.last_round, self.capacity = scenario.rounds, timing.mailbox_per_sender
        self.max_age: int = timing.staleness.bind()().max_age
        self.is_sample = scenario.output.message_events < 1
        self.clients, self.byzantine = clients, byzantine
        self.in_transit: dict[int, TrackedMessage] = {}
        self.in_mailbox: dict[int, TrackedMessage] = {}
        self.inboxes: list[dict[int, TrackedInbox]] = [defaultdict(TrackedInbox) for _ in clients.states]
        self.counts: Counter[str] = Counter()
        self.num_bytes = 0.0
        """The bytes of all messages, each sent once."""
        self.num_reordered = 0
        self.newest: dict[tuple[int, int], tuple[int, int]] = {}
        """The place of the newest message that each link has delivered."""

    def message_sent(self, record: MessageSent, line: int) -> None:
        """Check the link and the stamp of a new message."""
        number, sender, recipient = record["message"], record["sender"], record["recipient"]
        stamp, true_round, time_s = record["round"], record["true_round"], record["time_s"]
        clients, state = self.clients, self.clients.states[sender]
        self.links.num_items += 1
        if recipient not in clients.neighbours[sender]:
            self.links.violated(line, f"message {number}: {recipient} is not a neighbour of {sender}")
        if sender in clients.timeline.stopped:
            self.links.violated(line, f"message {number}: the sender {sender} is down")
        self.stamps.num_items += 1
        if true_round != state.round:
            self.stamps.violated(line, f"client {sender} is in round {state.round}, not {true_round}")
        elif sender not in self.byzantine:
            if stamp != true_round:
                self.stamps.violated(
                    line, f"honest client {sender} stamped a message with round {stamp} in round {true_round}"
                )
            if state.phase is not ClientPhase.GATHERING or state.time_s != time_s:
                self.stamps.violated(
                    line, f"honest client {sender} did not finish its training at {time_s} s"
                )
        self.num_bytes += record["size_bytes"]
        message = TrackedMessage(sender, recipient, stamp, time_s, (true_round, number))
        self._begin(number, line, "sent", message)

    def message_copied(self, record: MessageCopied, line: int) -> None:
        """Check that the original of a copy is in transit."""
        number, original = record["message"], record["original"]
        message = self.in_transit.get(original)
        if message is None:
            if not self.is_sample:
                self.outcomes.violated(line, f"message {original} is copied, but is not in transit")
            message = TrackedMessage(
                record["sender"], record["recipient"], record["round"], None, (0, number)
            )
        self._begin(number, line, "copied", message)
        self._compare(record, line, message)

    def message_lost(self, record: MessageDropped, line: int) -> None:
        """Check the reason for a loss."""
        message = self._end(record, line, self.in_transit, "lost", "in transit")
        if message is None:
            return
        possible = [transport.ALL_FAILED if self.retransmits else self._obstacle(message) or LOSS]
        if self.clients.stopped_at_s.get(message.sender) == record["time_s"]:
            possible.append(transport.SENDER_DOWN)  # the message may have been queued at its sender
        self._check_reason(record, line, possible)

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
                line,
                f"message {number} was sent at {sent_at_s} s and arrives at {record['time_s']} s: "
                f"its delay is not {delay_s} s",
            )
        self.links.num_items += 1
        obstacle = self._obstacle(message)
        if obstacle is not None:
            link = f"from {message.sender} to {recipient}"
            self.links.violated(line, f"message {number} {link} is delivered, despite: {obstacle}")
        if message.place >= self.newest.get(message[:2], (0, 0)):
            self.newest[message[:2]] = message.place
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
        self._check_reason(record, line, self._possible_reasons(record, "stale"))
        self._leave_mailbox(record, line, "stale")

    def message_duplicate(self, record: MessageDropped, line: int) -> None:
        """Check that another message has the same sender and round."""
        self._check_reason(record, line, self._possible_reasons(record, "duplicate"))
        self._leave_mailbox(record, line, "duplicate")

    def message_rejected(self, record: MessageDropped, line: int) -> None:
        """Check the reason for rejecting a message."""
        self._check_reason(record, line, self._possible_reasons(record, "rejected"))
        inbox = self._leave_mailbox(record, line, "rejected")
        if record["reason"] in FINAL_REJECTIONS:
            inbox.last_rejected = max(inbox.last_rejected, record["round"])

    def fault(self, record: FaultRecord, line: int) -> None:
        """Empty the mailboxes of clients that restart with a new model."""
        for client in record.get("clients", ()):
            if self.clients.restarted_at_s.get(client) == record["time_s"]:
                for inbox in self.inboxes[client].values():
                    inbox.clear()

    def _begin(self, number: int, line: int, what: str, message: TrackedMessage) -> None:
        """Check that the number of a message is new, and put the message on its link."""
        self.counts[what] += 1
        self.outcomes.num_items += 1
        if number in self.in_transit or number in self.in_mailbox:
            self.outcomes.violated(line, f"message {number} is {what}, but exists already")
        self.in_transit[number] = message

    def _end(
        self, record: MessageRecord, line: int, place: dict[int, TrackedMessage], outcome: str, before: str
    ) -> TrackedMessage | None:
        """Check that a message is in `place` and has not changed, then remove it."""
        self.counts[outcome] += 1
        self.outcomes.num_items += 1
        message = place.pop(record["message"], None)
        if message is None:
            self.outcomes.violated(line, f"message {record['message']} is {outcome}, but is not {before}")
            return None
        self._compare(record, line, message)
        return message

    def _compare(self, record: MessageRecord, line: int, message: TrackedMessage) -> None:
        if (record["sender"], record["recipient"], record["round"]) != message[:3]:
            expected = f"from {message.sender} to {message.recipient}, of round {message.stamp}"
            self.outcomes.violated(line, f"message {record['message']} was sent {expected}")

    def _leave_mailbox(self, record: MessageRecord, line: int, outcome: str) -> TrackedInbox:
        self._end(record, line, self.in_mailbox, outcome, "in a mailbox")
        inbox = self.inboxes[record["recipient"]][record["sender"]]
        was_held = inbox.held.pop(record["message"], None) is not None
        if was_held and outcome in ("used", "stale"):
            inbox.last_removed = max(inbox.last_removed, record["round"])
        return inbox

    def _obstacle(self, message: TrackedMessage) -> str | None:
        """Return the fault that blocks the link of a message; of several, the one that is recorded."""
        sender, recipient = message.sender, message.recipient
        timeline = self.clients.timeline
        if (sender, recipient) in timeline.links_down:
            return obstacles.LINK_IS_DOWN
        if timeline.is_partitioned(sender, recipient):
            return obstacles.PARTITION
        return obstacles.RECIPIENT_DOWN if recipient in timeline.stopped else None

    def _check_reason(self, record: MessageDropped, line: int, possible: list[str]) -> None:
        self.reasons.num_items += 1
        if record["reason"] not in possible:
            why = f"must be: {' or '.join(possible)}" if possible else "none is possible"
            self.reasons.violated(
                line, f"the reason for message {record['message']} is {record['reason']!r}, but {why}"
            )

    def _possible_reasons(self, record: MessageDropped, outcome: str) -> list[str]:
        """Return the reasons for which a mailbox may drop a message now with this outcome."""
        stamp, recipient = record["round"], record["recipient"]
        if record["sender"] not in self.clients.neighbours[recipient]:
            return {"stale": [mailbox.FORMER_NEIGHBOUR], "rejected": [mailbox.UNKNOWN_SENDER]}.get(
                outcome, []
            )
        if not 1 <= stamp <= self.last_round:
            return [mailbox.NO_SUCH_ROUND] if outcome == "rejected" else []
        if outcome == "rejected":
            return [*FINAL_REJECTIONS]
        inbox = self.inboxes[recipient][record["sender"]]
        others = [other for number, other in inbox.held.items() if number != record["message"]]
        if outcome == "duplicate":
            return [mailbox.SAME_ROUND] if stamp in (inbox.last_used, *others) else []
        round_ = self.clients.states[recipient].round
        if record["message"] not in inbox.held:  # a restart of the recipient has removed it
            restarts = self.clients.restarted_at_s.get(recipient) == record["time_s"]
            return [mailbox.RESTARTED] if restarts else []
        is_too_old = round_ - max([stamp, *others]) > self.max_age
        is_full = len(others) >= self.capacity
        possible = {
            mailbox.TOO_OLD: is_too_old,
            mailbox.MAILBOX_FULL: is_full and stamp < min(others),
            mailbox.NEWER_CHOSEN: not is_too_old and stamp < max(others, default=0),
            mailbox.NEWER_USED: stamp < inbox.last_used,
        }
        return [reason for reason, is_possible in possible.items() if is_possible]
