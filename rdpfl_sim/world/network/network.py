"""The network: it takes messages, and each arrives later or is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

from rdpfl_sim.methods.exchange import Payload
from rdpfl_sim.randomness import uniform
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.bandwidth import Bandwidth
from rdpfl_sim.world.network.links import COPY, COPY_LATENCY, LATENCY, MESSAGE, ROUND, Link, lossless
from rdpfl_sim.world.network.message import Letter, Message
from rdpfl_sim.world.network.transport import SENDER_DOWN, Reliable, Transport
from rdpfl_sim.world.observer import Observer


class LinksOf(dict[int, Link]):
    """The links of one sender, by recipient; each is made when it is first used."""

    def __init__(self, sender: int, make_link: Callable[[int, int], Link]) -> None:
        super().__init__()
        self.sender = sender
        self.make_link = make_link

    def __missing__(self, recipient: int) -> Link:
        link = self[recipient] = self.make_link(self.sender, recipient)
        return link


class Network:
    """All links, what is wrong with them at the moment, and the count of what became of the messages.

    A message is lost if its link is interrupted or its recipient is down when it leaves or when it arrives,
    and if its sender stops before it has left.
    """

    STATE = (
        *("partitions", "interrupted", "down"),
        *("num_sent", "num_copied", "num_lost", "num_delivered", "num_reordered", "num_bytes"),
    )
    CALLS = ("arrive", "cross")

    def __init__(
        self,
        kernel: Kernel,
        num_clients: int,
        observer: Observer,
        make_link: Callable[[int, int], Link],
        *,
        bandwidth: Bandwidth | None = None,
        transport: Transport = Transport(),  # noqa: B008 (it is immutable)
        duplication: float = 0.0,
        compression: float = 1.0,
    ) -> None:
        self.kernel = kernel
        self.observer = observer
        self.links = [LinksOf(sender, make_link) for sender in range(num_clients)]
        self.bandwidth = bandwidth
        self.reliable = Reliable(self, transport) if transport.retransmits else None
        self.duplication = duplication
        self.compression = compression
        self.receivers: list[Callable[[Message], None]] = []
        self.partitions: list[tuple[frozenset[int], ...]] = []
        self.interrupted: Counter[tuple[int, int]] = Counter()
        self.down: set[int] = set()
        self.num_sent = self.num_copied = self.num_lost = self.num_delivered = self.num_reordered = 0
        self.num_bytes = 0.0
        self._on_arrival = self.arrive
        self._tells = type(observer) is not Observer  # a plain one would not listen
        self._leave = self.cross if self.reliable is None else self.reliable.leave
        self._begin = self.transmit if self.reliable is None else self.reliable.begin
        self._is_simple = bandwidth is None and self.reliable is None and duplication == 0

    @property
    def num_in_flight(self) -> int:
        """Messages that have neither arrived nor been lost."""
        return self.num_sent - self.num_delivered - self.num_lost

    def send(self, sender: int, round_: int, stamp: int, payload: Payload, recipients: Sequence[int]) -> None:
        """Put a message to each recipient on its link; the stamp is the round that the sender claims."""
        size_bytes = payload.size_bytes / self.compression
        letter = Letter(sender, stamp, payload, size_bytes, self.kernel.now)
        self.num_bytes += size_bytes * len(recipients)
        if self._is_simple and not (self.partitions or self.interrupted or self.down):
            self._send_simply(letter, round_, recipients)
            return
        links = self.links[sender]
        for recipient in self.in_turn(recipients, round_):
            link = links[recipient]
            message = Message(self.num_sent, link, letter, link.next_draw(round_), self._on_arrival)
            self.num_sent += 1
            self.observer.message_sent(message)
            self._begin(message)

    def _send_simply(self, letter: Letter, round_: int, recipients: Sequence[int]) -> None:
        """Send as `send` and `cross` do, in one go, where a link can only delay a message or lose it."""
        links, now_s, told = self.links[letter.sender], letter.sent_at_s, self._tells
        on_arrival, post, number = self._on_arrival, self.kernel.post, self.num_sent
        first_draw = round_ * ROUND
        for recipient in recipients:
            link = links[recipient]
            draw = first_draw if link.next_draws <= first_draw else link.next_draws  # as Link.next_draw
            link.next_draws = draw + MESSAGE
            message = Message(number, link, letter, draw, on_arrival)
            number += 1
            if told:
                self.observer.message_sent(message)
            if link.loses is not lossless and link.loses(link, draw, now_s):
                self.lose(message, "loss")
            else:
                delay_s = link.propagation_s + link.latency(uniform(link.key, draw + LATENCY))
                post(message, now_s + delay_s)
        self.num_sent = number

    def in_turn(self, recipients: Sequence[int], round_: int) -> Sequence[int]:
        """The order in which to send: if there is a queue, another one is first in every round."""
        if self.bandwidth is None or not recipients:
            return recipients
        first = round_ % len(recipients)
        return [*recipients[first:], *recipients[:first]]

    def transmit(self, message: Message) -> None:
        """Let the message leave its sender, behind or beside what else is on the wire."""
        if self.bandwidth is None:
            self._leave(message)
        else:
            self.bandwidth.transmit(message, self._leave)

    def cross(self, message: Message) -> None:
        """The last byte has left the sender: the link decides."""
        link, draw = message.link, message.draw
        reason = self.why_lost(link, draw)
        if reason is not None:
            self.lose(message, reason)
            return
        self.kernel.post(message, self.kernel.now + link.delay_s(draw + LATENCY))
        if self.duplication > 0 and uniform(link.key, draw + COPY) < self.duplication:
            self._copy(message)

    def why_lost(self, link: Link, draw: int) -> str | None:
        """Why a message does not get through a link now, or None if it does."""
        if self.partitions or self.interrupted or self.down:
            obstacle = self.obstacle(link)
            if obstacle is not None:
                return obstacle
        if link.loses is not lossless and link.loses(link, draw, self.kernel.now):
            return "loss"
        return None

    def crossing_s(self, link: Link, draw: int) -> float | None:
        """The seconds that a message needs on a link now, or None if it is lost."""
        if self.why_lost(link, draw) is not None:
            return None
        return link.delay_s(draw + LATENCY)

    def obstacle(self, link: Link) -> str | None:
        """What keeps messages from crossing a link at the moment."""
        sender, recipient = link.sender, link.recipient
        if self.interrupted[sender, recipient]:
            return "link is down"
        for sides in self.partitions:
            if any(sender in one and recipient in other for one, other in permutations(sides, 2)):
                return "partition"
        return "recipient is down" if recipient in self.down else None

    def arrive(self, message: Message) -> None:
        """Hand a message to its recipient, unless something is in its way now."""
        link = message.link
        if self.partitions or self.interrupted or self.down:
            obstacle = self.obstacle(link)
            if obstacle is not None:
                self.lose(message, obstacle)
                return
        self.num_delivered += 1
        if message.draw >= link.newest:
            link.newest = message.draw
        else:
            self.num_reordered += 1
        if self._tells:
            self.observer.message_delivered(message)
        self.receivers[link.recipient](message)

    def lose(self, message: Message, reason: str) -> None:
        """Count a message that will never arrive."""
        self.num_lost += 1
        self.observer.message_lost(message, reason)

    def stop(self, client: int) -> None:
        """Take a client off the network. Messages that have not left it are lost."""
        self.down.add(client)
        unsent = [] if self.bandwidth is None else self.bandwidth.drop(client)
        if self.reliable is not None:
            self.reliable.stop(client, unsent)
            return
        for message in unsent:
            self.lose(message, SENDER_DOWN)

    def interrupt(self, links: Iterable[tuple[int, int]]) -> None:
        """From now on nothing crosses these directed links; the same link can be interrupted twice."""
        self.interrupted.update(links)

    def restore(self, links: Iterable[tuple[int, int]]) -> None:
        """Undo one interruption of each of these links."""
        self.interrupted.subtract(links)
        self.interrupted = +self.interrupted

    def _copy(self, message: Message) -> None:
        """The network duplicates a message; the copy takes its own time."""
        link, draw = message.link, message.draw
        copy = Message(self.num_sent, link, message.letter, draw, self._on_arrival)
        self.num_sent += 1
        self.num_copied += 1
        self.observer.message_copied(copy, message.number)
        self.kernel.post(copy, self.kernel.now + link.delay_s(draw + COPY_LATENCY))
