"""What the records say of every message: from the moment it is sent to the moment it is used or dropped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rdpfl_sim.records.fault_timeline import STARTS, STOPPING
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs, Record
from rdpfl_sim.verification.clients import Clients, Doing

REFUSALS = ("not finite", "wrong shape or type")
"""Why a message is rejected after which nothing better is expected of its sender in that round."""


SENDER_DOWN = "sender is down"
"""Why a message is lost that has not left its sender when that stops."""

OBSTACLES = {
    "link is down": "the link from {0} to {1} is down",
    "partition": "{0} and {1} are on different sides of a cut",
    "recipient is down": "{1} is down",
}
"""Why a message is lost that the link itself would not lose, in the order in which they are looked for."""


class Letter(NamedTuple):
    """A message on its way or in a mailbox."""

    sender: int
    recipient: int
    stamp: int
    sent_at_s: float
    """If a copy's original is not recorded, when the copy was made."""
    is_exact: bool
    """Whether the time at which it was sent is known."""
    place: tuple[int, int]
    """Where it stands on its link: the sender's round, and the number of the message or of its original."""


@dataclass
class Box:
    """What one client has of one sender: the stamps of the messages that wait, by number."""

    held: dict[int, int] = field(default_factory=dict)
    gone: int = 0
    """The latest stamp that was used, or has made room."""
    last_used: int = 0
    refused: int = 0


class Post:
    """Follows every message, over links that may be cut, into a mailbox."""

    def __init__(
        self,
        scenario: Scenario,
        clients: Clients,
        byzantine: frozenset[int],
        is_recorded: Callable[[int], bool],
    ) -> None:
        self.numbering = Check(
            "numbering", "Messages are numbered in the order of their sending, without a gap.", Needs.MESSAGES
        )
        self.fates = Check(
            "fates",
            "Every message is sent, then lost or delivered, then used or dropped, each at most once.",
            Needs.MESSAGES,
        )
        self.causality = Check(
            "causality",
            "Nothing arrives before it was sent, and every delay is the time between the two.",
            Needs.MESSAGES,
        )
        self.links = Check(
            "links",
            "Messages go from neighbour to neighbour; none crosses a cut, or leaves or reaches who is down.",
            Needs.MESSAGES,
        )
        self.stamps = Check(
            "stamps",
            "An honest client sends when its training ends, and claims that round.",
            Needs.MESSAGES,
        )
        self.reasons = Check(
            "reasons",
            "Every message that is lost or dropped has the reason that its link or mailbox gives.",
            Needs.ALL_MESSAGES,
        )
        self.sizes = Check(
            "sizes", "An honest client sends as many bytes to every neighbour.", Needs.MESSAGES
        )
        self.checks = [
            *(self.numbering, self.fates, self.causality, self.links, self.stamps),
            *(self.reasons, self.sizes),
        ]
        network, timing = scenario.network, scenario.timing
        self.retransmits = network.transport.name == "reliable"
        self.leaves_at_once = not self.retransmits and network.bandwidth.name == "unlimited"
        self.last_round, self.capacity = scenario.rounds, timing.mailbox_per_sender
        self.max_age: int = timing.staleness.bind()().max_age
        self.clients = clients
        self.byzantine = byzantine
        self.is_recorded = is_recorded
        self.next_number = 0
        self.under_way: dict[int, Letter] = {}
        self.waiting: dict[int, Letter] = {}
        self.boxes: list[dict[int, Box]] = [defaultdict(Box) for _ in clients.lives]
        self.counts: Counter[str] = Counter()
        self.num_bytes = 0.0
        self.num_reordered = 0
        self.newest: dict[tuple[int, int], tuple[int, int]] = {}
        self.latest_size: dict[int, tuple[float, float]] = {}
        """Of every honest sender, when it last sent, and how many bytes."""
        self.afresh_at_s: dict[int, float] = {}
        """When clients recovered that may have lost their model and their messages."""
        self.stopped_at_s: dict[int, float] = {}
        """When clients last crashed or left."""

    def message_sent(self, record: Record, line: int) -> None:
        """A message begins; its sender is up, and speaks to a neighbour."""
        number, sender, recipient = record["message"], record["sender"], record["recipient"]
        stamp, true_round, time_s = record["round"], record["true_round"], record["time_s"]
        self._begin(number, line, "sent")
        clients, life = self.clients, self.clients.lives[sender]
        self.links.num_items += 1
        if recipient not in clients.neighbours[sender]:
            self.links.violated(line, f"{recipient} is no neighbour of {sender}")
        if sender in clients.timeline.stopped:
            self.links.violated(line, f"the sender {sender} is down")
        self.stamps.num_items += 1
        if true_round != life.round:
            self.stamps.violated(line, f"client {sender} is in round {life.round}, not in {true_round}")
        elif sender not in self.byzantine:
            if stamp != true_round:
                self.stamps.violated(line, f"honest client {sender} claims round {stamp} in {true_round}")
            if life.doing is not Doing.GATHERING or life.time_s != time_s:
                self.stamps.violated(line, f"honest client {sender} has not just ended its training")
            self._check_size(sender, time_s, record["size_bytes"], line)
        self.num_bytes += record["size_bytes"]
        self.under_way[number] = Letter(sender, recipient, stamp, time_s, True, (true_round, number))

    def message_copied(self, record: Record, line: int) -> None:
        """The network makes a second message out of one that is under way."""
        number, original = record["message"], record["original"]
        self._begin(number, line, "copied")
        letter = self.under_way.get(original)
        if letter is None and self.is_recorded(original):
            self.fates.violated(line, f"message {original} is copied, but not under way")
        if letter is None:
            letter = Letter(
                record["sender"], record["recipient"], record["round"], record["time_s"], False, (0, number)
            )
        self.under_way[number] = letter
        self._compare(record, line, letter)

    def message_lost(self, record: Record, line: int) -> None:
        """A message that was under way will not arrive."""
        letter = self._end(record, line, self.under_way, "lost", "under way")
        if letter is None:
            return
        self.reasons.num_items += 1
        reasons = self._reasons(letter, record["time_s"])
        if record["reason"] not in reasons:
            told = " or ".join(reasons)
            self.reasons.violated(line, f"message {record['message']} is lost because of: {told}")
        elif reasons == ["loss"] and self.leaves_at_once and record["time_s"] != letter.sent_at_s:
            self.reasons.violated(line, f"a link loses a message when it is sent, at {letter.sent_at_s} s")

    def message_delivered(self, record: Record, line: int) -> None:
        """A message that was under way waits in its recipient's mailbox."""
        letter = self._end(record, line, self.under_way, "delivered", "under way")
        if letter is None:
            return
        number, time_s, recipient = record["message"], record["time_s"], letter.recipient
        self.causality.num_items += 1
        if time_s < letter.sent_at_s or record["delay_s"] < 0:
            self.causality.violated(line, f"message {number} was sent at {letter.sent_at_s} s")
        elif letter.is_exact and record["delay_s"] != time_s - letter.sent_at_s:
            self.causality.violated(
                line, f"message {number} was sent at {letter.sent_at_s} s, {record['delay_s']} s ago?"
            )
        self.links.num_items += 1
        obstacle = self._obstacle(letter)
        if obstacle is not None:
            told = OBSTACLES[obstacle].format(letter.sender, recipient)
            self.links.violated(line, f"message {number} arrives, although {told}")
        way = letter.sender, recipient
        if letter.place >= self.newest.get(way, (0, 0)):
            self.newest[way] = letter.place
        else:
            self.num_reordered += 1
        self.waiting[number] = letter
        if letter.sender in self.clients.neighbours[recipient]:
            self.boxes[recipient][letter.sender].held[number] = letter.stamp

    def message_used(self, record: Record, line: int) -> None:
        """A message leaves its mailbox for good."""
        self._leave_mailbox(record, line, "used")
        self.boxes[record["recipient"]][record["sender"]].last_used = record["round"]

    def message_stale(self, record: Record, line: int) -> None:
        """A message came too late, or had to make room."""
        self._check_reason(record, line, STALE)
        self._leave_mailbox(record, line, "stale")

    def message_duplicate(self, record: Record, line: int) -> None:
        """A second message of the same sender and round."""
        self._check_reason(record, line, DUPLICATE)
        self._end(record, line, self.waiting, "duplicate", "delivered")
        self.boxes[record["recipient"]][record["sender"]].held.pop(record["message"], None)

    def message_rejected(self, record: Record, line: int) -> None:
        """A message that no mailbox takes."""
        self._check_reason(record, line, REJECTED)
        self._end(record, line, self.waiting, "rejected", "delivered")
        box = self.boxes[record["recipient"]][record["sender"]]
        box.held.pop(record["message"], None)
        if record["reason"] in REFUSALS:
            box.refused = max(box.refused, record["round"])

    def fault(self, record: Record, line: int) -> None:
        """Note when clients stop and when they start again with a fresh model."""
        if STARTS.get(record["change"]) in STOPPING:
            self.stopped_at_s.update(dict.fromkeys(record["clients"], record["time_s"]))
        elif record.get("fresh"):
            self.afresh_at_s.update(dict.fromkeys(record["clients"], record["time_s"]))

    def _begin(self, number: int, line: int, what: str) -> None:
        self.counts[what] += 1
        self.numbering.num_items += 1
        if number < self.next_number:
            self.numbering.violated(line, f"message {number} comes after {self.next_number - 1}")
            return
        for missing in range(self.next_number, number):
            if self.is_recorded(missing):
                self.numbering.violated(line, f"message {missing} is missing before {number}")
                break
        if not self.is_recorded(number):
            self.numbering.violated(line, f"message {number} is not among those to be recorded")
        self.next_number = number + 1

    def _end(
        self, record: Record, line: int, place: dict[int, Letter], fate: str, before: str
    ) -> Letter | None:
        """Take a message from where it is; it must be there, and be the same as when it was sent."""
        self.counts[fate] += 1
        self.fates.num_items += 1
        letter = place.pop(record["message"], None)
        if letter is None:
            self.fates.violated(line, f"message {record['message']} is {fate}, but was not {before}")
            return None
        self._compare(record, line, letter)
        return letter

    def _compare(self, record: Record, line: int, letter: Letter) -> None:
        if (record["sender"], record["recipient"], record["round"]) != letter[:3]:
            told = f"from {letter.sender} to {letter.recipient}, of round {letter.stamp}"
            self.fates.violated(line, f"message {record['message']} was sent {told}")

    def _leave_mailbox(self, record: Record, line: int, fate: str) -> None:
        self._end(record, line, self.waiting, fate, "delivered")
        box = self.boxes[record["recipient"]][record["sender"]]
        if box.held.pop(record["message"], None) is not None:
            box.gone = max(box.gone, record["round"])

    def _obstacle(self, letter: Letter) -> str | None:
        sender, recipient = letter.sender, letter.recipient
        timeline = self.clients.timeline
        if (sender, recipient) in timeline.links_down:
            return "link is down"
        if timeline.is_partitioned(sender, recipient):
            return "partition"
        return "recipient is down" if recipient in timeline.stopped else None

    def _reasons(self, letter: Letter, now_s: float) -> list[str]:
        """Why a message can be lost now."""
        usual = "given up" if self.retransmits else self._obstacle(letter)
        if self.leaves_at_once or self.stopped_at_s.get(letter.sender) != now_s:
            return [usual or "loss"]
        return [SENDER_DOWN, *([] if usual is None else [usual])]  # nothing leaves who is down

    def _check_size(self, sender: int, time_s: float, size_bytes: float, line: int) -> None:
        self.sizes.num_items += 1
        before_s, before = self.latest_size.get(sender, (None, size_bytes))
        if time_s == before_s and size_bytes != before:
            self.sizes.violated(line, f"client {sender} has just sent {before} bytes to another neighbour")
        self.latest_size[sender] = time_s, size_bytes

    def _check_reason(self, record: Record, line: int, allowed: Mapping[str, Reason]) -> None:
        """See that the message's reason is one of its fate, and can be true, before it is dropped."""
        self.reasons.num_items += 1
        sender, recipient = record["sender"], record["recipient"]
        box, reason = self.boxes[recipient][sender], record["reason"]
        drop = Drop(
            stamp=record["round"],
            round=self.clients.lives[recipient].round,
            is_neighbour=sender in self.clients.neighbours[recipient],
            others=[stamp for number, stamp in box.held.items() if number != record["message"]],
            last_used=box.last_used,
            is_afresh=self.afresh_at_s.get(recipient) == record["time_s"],
            last_round=self.last_round,
            max_age=self.max_age,
            capacity=self.capacity,
        )
        if reason not in allowed:
            self.reasons.violated(line, f"no such message is dropped because of: {reason}")
        elif not allowed[reason](drop):
            self.reasons.violated(line, f"message {record['message']} is not dropped because of: {reason}")


class Drop(NamedTuple):
    """What is known of a message that is dropped, and of its recipient."""

    stamp: int
    round: int
    """The recipient's."""
    is_neighbour: bool
    others: list[int]
    """The stamps of the same sender's messages that wait."""
    last_used: int
    is_afresh: bool
    last_round: int
    max_age: int
    capacity: int

    @property
    def is_possible(self) -> bool:
        """Whether a neighbour may have sent it in some round."""
        return self.is_neighbour and 1 <= self.stamp <= self.last_round

    @property
    def is_too_old(self) -> bool:
        """Whether the recipient's round allows no message of that age."""
        return self.round - self.stamp > self.max_age


Reason: TypeAlias = Callable[[Drop], bool]
"""Whether a message can have been dropped for a reason."""

STALE: Mapping[str, Reason] = {
    "no longer a neighbour": lambda drop: not drop.is_neighbour,
    "its recipient began afresh": lambda drop: drop.is_neighbour and drop.is_afresh,
    "too old": lambda drop: drop.is_possible and drop.is_too_old,
    "made room for a newer one": lambda drop: (
        drop.is_possible and len(drop.others) >= drop.capacity and drop.stamp < min(drop.others)
    ),
    "a later one is used": lambda drop: (
        drop.is_possible and not drop.is_too_old and drop.stamp < max(drop.others, default=0)
    ),
    "a later one was used": lambda drop: drop.is_possible and drop.stamp < drop.last_used,
}
DUPLICATE: Mapping[str, Reason] = {
    "same sender and round": lambda drop: (
        drop.is_possible and (drop.stamp == drop.last_used or drop.stamp in drop.others)
    ),
}
REJECTED: Mapping[str, Reason] = {
    "unknown sender": lambda drop: not drop.is_neighbour,
    "no such round": lambda drop: drop.is_neighbour and not drop.is_possible,
    **dict.fromkeys(REFUSALS, lambda drop: drop.is_possible),
}
