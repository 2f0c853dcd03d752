"""The network: every message that a client sends arrives later or is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rdpfl_sim.methods.base import Payload
from rdpfl_sim.randomness import uniform
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.bandwidth import Bandwidth
from rdpfl_sim.world.network.links import COPY, COPY_LATENCY, LATENCY, Link
from rdpfl_sim.world.network.message import Broadcast, Message
from rdpfl_sim.world.network.obstacles import Obstacles
from rdpfl_sim.world.network.transport import SENDER_DOWN, Reliable, Transport
from rdpfl_sim.world.observer import Observer

LOSS = "loss"
"""The reason for a message that its link loses, as opposed to an obstacle."""


class LinksOf(dict[int, Link]):
    """The links of one sender, by recipient; each is created on first use."""

    def __init__(self, sender: int, make_link: Callable[[int, int], Link]) -> None:
        super().__init__()
        self.sender = sender
        self.make_link = make_link

    def __missing__(self, recipient: int) -> Link:
        link = self[recipient] = self.make_link(self.sender, recipient)
        return link


class Recipient(Protocol):
    """The part of a client that the network uses."""

    def receive(self, message: Message) -> None:
        """Accept a message that has arrived."""


class Network:
    """All links, their obstacles, and counts of message outcomes.

    A message takes these steps: `send`, `transmit` (bandwidth), `cross` (loss and latency), `arrive`. It is
    lost if the link loses it, if the link is blocked when it leaves or arrives, or if its sender stops before
    it has left. A reliable transport may repeat `transmit` and `cross`.
    """

    STATE = ("num_sent", "num_copied", "num_lost", "num_delivered", "num_reordered", "num_bytes")
    CALLS = ("arrive", "cross")

    def __init__(
        self,
        kernel: Kernel,
        num_clients: int,
        recipients: Sequence[Recipient],
        observer: Observer,
        make_link: Callable[[int, int], Link],
        *,
        bandwidth: Bandwidth | None = None,
        transport: Transport = Transport(),  # noqa: B008 (it is immutable)
        duplication: float = 0.0,
        compression: float = 1.0,
    ) -> None:
        self.kernel = kernel
        self.recipients = recipients
        """Recipients by client id. The list is complete when the first message is sent."""
        self.observer = observer
        self.links = [LinksOf(sender, make_link) for sender in range(num_clients)]
        self.bandwidth = bandwidth
        self.reliable = Reliable(self, transport) if transport.retransmits else None
        self.duplication = duplication
        self.compression = compression
        self.obstacles = Obstacles()
        self.num_sent = self.num_copied = self.num_lost = self.num_delivered = self.num_reordered = 0
        self.num_bytes = 0.0

    @property
    def num_in_flight(self) -> int:
        """Messages that have neither arrived nor been lost."""
        return self.num_sent - self.num_delivered - self.num_lost

    def send(
        self,
        sender: int,
        round_: int,
        payload: Payload,
        recipients: Sequence[int],
        *,
        stamp: int | None = None,
    ) -> None:
        """Send one message to each recipient. The stamp is the claimed round (default: `round_`)."""
        stamp = round_ if stamp is None else stamp
        size_bytes = payload.size_bytes / self.compression
        broadcast = Broadcast(sender, stamp, payload, size_bytes, self.kernel.now)
        self.num_bytes += size_bytes * len(recipients)
        links, arrive, report = self.links[sender], self.arrive, self.observer.message_sent
        start = self.transmit if self.reliable is None else self.reliable.start
        for recipient in self.send_order(recipients, round_):
            link = links[recipient]
            message = Message(self.num_sent, link, broadcast, link.next_draw(round_), arrive)
            self.num_sent += 1
            report(message)
            start(message)

    def send_order(self, recipients: Sequence[int], round_: int) -> Sequence[int]:
        """Return the order of sending. With limited bandwidth, the first recipient changes every round."""
        if self.bandwidth is None or not recipients:
            return recipients
        first = round_ % len(recipients)
        return [*recipients[first:], *recipients[:first]]

    def transmit(self, message: Message) -> None:
        """Transmit a message with the bandwidth of its sender and recipient, then call `cross`."""
        cross = self.cross if self.reliable is None else self.reliable.cross
        if self.bandwidth is None:
            cross(message)
        else:
            self.bandwidth.transmit(message, cross)

    def cross(self, message: Message) -> None:
        """Schedule the arrival of a message whose last byte has left its sender, unless it is lost."""
        link, draw, now_s = message.link, message.draw, self.kernel.now
        reason = self.loss_reason(link, draw)
        if reason is not None:
            self.lose(message, reason)
            return
        self.kernel.call_at(message, now_s + link.delay_s(draw + LATENCY))
        if self.duplication > 0 and uniform(link.key, draw + COPY) < self.duplication:
            self._copy(message)

    def loss_reason(self, link: Link, draw: int) -> str | None:
        """Return why a message that enters a link now is lost, or None if it is not lost."""
        obstacle = self.obstacles.reason(link.sender, link.recipient)
        if obstacle is not None:
            return obstacle
        return LOSS if link.loses(link, draw, self.kernel.now) else None

    def transit_time_s(self, link: Link, draw: int) -> float | None:
        """Return the delay of a message that enters a link now, or None if it is lost."""
        return link.delay_s(draw + LATENCY) if self.loss_reason(link, draw) is None else None

    def arrive(self, message: Message) -> None:
        """Pass a message to its recipient, unless there is an obstacle now."""
        link = message.link
        obstacle = self.obstacles.reason(link.sender, link.recipient)
        if obstacle is not None:
            self.lose(message, obstacle)
            return
        self.num_delivered += 1
        if message.draw >= link.newest:
            link.newest = message.draw
        else:
            self.num_reordered += 1
        self.observer.message_delivered(message)
        self.recipients[link.recipient].receive(message)

    def lose(self, message: Message, reason: str) -> None:
        """Count and report a message that will never arrive."""
        self.num_lost += 1
        self.observer.message_lost(message, reason)

    def stop(self, client: int) -> None:
        """Disconnect a client. Its messages that have not left yet are lost."""
        self.obstacles.clients_down.add(client)
        unsent = [] if self.bandwidth is None else self.bandwidth.drop(client)
        if self.reliable is not None:
            self.reliable.stop(client, unsent)
            return
        for message in unsent:
            self.lose(message, SENDER_DOWN)

    def _copy(self, message: Message) -> None:
        """Duplicate a message. The copy has its own latency."""
        link, draw = message.link, message.draw
        copy = Message(self.num_sent, link, message.broadcast, draw, self.arrive)
        self.num_sent += 1
        self.num_copied += 1
        self.observer.message_copied(copy, message.number)
        self.kernel.call_at(copy, self.kernel.now + link.delay_s(draw + COPY_LATENCY))
