"""What the records say of every message: from the moment it is sent to the moment it is used or dropped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from rdpfl_sim.verification.check import Check, Needs, Record
from rdpfl_sim.verification.clients import Clients, Doing

REFUSALS = ("not finite", "wrong shape or type")
"""Why a message is rejected after which nothing better is expected of its sender in that round."""


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
    refused: int = 0


class Post:
    """Follows every message, over links that may be cut, into a mailbox."""

    def __init__(
        self, clients: Clients, byzantine: frozenset[int], is_recorded: Callable[[int], bool]
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
        self.checks = [self.numbering, self.fates, self.causality, self.links, self.stamps]
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
        self.cuts: list[list[set[int]]] = []
        self.interrupted: Counter[tuple[int, int]] = Counter()

    def message_sent(self, record: Record, line: int) -> None:
        """A message begins; its sender is up, and speaks to a neighbour."""
        number, sender, recipient = record["message"], record["sender"], record["recipient"]
        stamp, true_round, time_s = record["round"], record["true_round"], record["time_s"]
        self._begin(number, line, "sent")
        clients, life = self.clients, self.clients.lives[sender]
        self.links.num_items += 1
        if recipient not in clients.neighbours[sender]:
            self.links.violated(line, f"{recipient} is no neighbour of {sender}")
        if sender in clients.away:
            self.links.violated(line, f"the sender {sender} is down")
        self.stamps.num_items += 1
        if true_round != life.round:
            self.stamps.violated(line, f"client {sender} is in round {life.round}, not in {true_round}")
        elif sender not in self.byzantine:
            if stamp != true_round:
                self.stamps.violated(line, f"honest client {sender} claims round {stamp} in {true_round}")
            if life.doing is not Doing.GATHERING or life.time_s != time_s:
                self.stamps.violated(line, f"honest client {sender} has not just ended its training")
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
        self._end(record, line, self.under_way, "lost", "under way")

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
            self.links.violated(line, f"message {number} arrives, although {obstacle}")
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

    def message_stale(self, record: Record, line: int) -> None:
        """A message came too late, or had to make room."""
        self._leave_mailbox(record, line, "stale")

    def message_duplicate(self, record: Record, line: int) -> None:
        """A second message of the same sender and round."""
        self._end(record, line, self.waiting, "duplicate", "delivered")
        self.boxes[record["recipient"]][record["sender"]].held.pop(record["message"], None)

    def message_rejected(self, record: Record, line: int) -> None:
        """A message that no mailbox takes."""
        self._end(record, line, self.waiting, "rejected", "delivered")
        box = self.boxes[record["recipient"]][record["sender"]]
        box.held.pop(record["message"], None)
        if record["reason"] in REFUSALS:
            box.refused = max(box.refused, record["round"])

    def fault(self, record: Record, line: int) -> None:
        """A cut, an outage, or the end of one."""
        change, faults = record["change"], self.clients.faults
        if change == "cut":
            self.cuts.append([set(side) for side in record["sides"]])
        elif change == "heal":
            sides = [set(side) for side in record["sides"]]
            if sides in self.cuts:
                self.cuts.remove(sides)
            else:
                faults.violated(line, "a cut heals that never was")
        elif change in ("links_down", "links_up"):
            for sender, recipient in record["links"]:
                self.interrupted[sender, recipient] += 1 if change == "links_down" else -1
                if self.interrupted[sender, recipient] < 0:
                    faults.violated(line, f"the link from {sender} to {recipient} comes up, but is not down")
            self.interrupted = +self.interrupted

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
        if recipient in self.clients.away:
            return f"{recipient} is down"
        if self.interrupted and self.interrupted[sender, recipient] > 0:
            return f"the link from {sender} to {recipient} is down"
        for sides in self.cuts:
            if any(sender in one and recipient in other for one, other in permutations(sides, 2)):
                return f"{sender} and {recipient} are on different sides of a cut"
        return None
