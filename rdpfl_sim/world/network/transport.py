"""Whether a sender makes sure that its messages arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from rdpfl_sim.components.options import Doc, Positive
from rdpfl_sim.world.kernel import Call
from rdpfl_sim.world.network.links import ATTEMPT, MAX_ATTEMPTS, Link
from rdpfl_sim.world.network.message import Message

if TYPE_CHECKING:
    from rdpfl_sim.world.network.network import Network

SENDER_DOWN = "sender is down"
ACKNOWLEDGEMENT = 1 << 60
"""Draws for acknowledgements are this far from those for the messages of the same link."""


@dataclass(frozen=True)
class Transport:
    """How often a message is tried; the n-th retransmission follows timeout_s backoff^n after the attempt."""

    max_attempts: int = 1
    timeout_s: float = 0.0
    backoff: float = 1.0
    acknowledgement_bytes: int = 0

    @property
    def retransmits(self) -> bool:
        """Whether receivers acknowledge messages, and senders repeat what is not acknowledged."""
        return self.max_attempts > 1


@dataclass(slots=True)
class Delivery:
    """What a sender knows about a message that it wants to arrive, and what the network does."""

    message: Message
    num_attempts: int = 0
    num_in_air: int = 0
    arrived: bool = False
    acknowledgements_s: list[float] = field(default_factory=list)
    """When the acknowledgements that are under way will arrive, unless something is in their way then."""
    acknowledged: bool = False
    closed: bool = False
    """The sender has stopped trying: the message is acknowledged or given up, or the sender has stopped."""


class Reliable:
    """Acknowledges and retransmits on top of a network that loses messages."""

    STATE = ("deliveries",)
    CALLS = ("leave", "_on_arrival", "_on_acknowledgement", "_on_timeout")

    def __init__(self, network: Network, transport: Transport) -> None:
        self.network = network
        self.transport = transport
        self.deliveries: dict[int, Delivery] = {}

    def begin(self, message: Message) -> None:
        """Try for the first time."""
        self.deliveries[message.number] = delivery = Delivery(message)
        self._attempt(delivery)

    def leave(self, message: Message) -> None:
        """An attempt has left the sender: it arrives or is lost, and the sender waits for an answer."""
        delivery, network = self.deliveries[message.number], self.network
        now_s, attempt = network.kernel.now, delivery.num_attempts - 1
        delay_s = network.crossing_s(message.link, message.draw + attempt * ATTEMPT)
        if delay_s is None:
            delivery.num_in_air -= 1
        else:
            network.kernel.post(Call(self._on_arrival, (delivery, attempt)), now_s + delay_s)
        patience_s = self.transport.timeout_s * self.transport.backoff**attempt
        network.kernel.post(Call(self._on_timeout, delivery), now_s + patience_s)

    def stop(self, sender: int, unsent: Iterable[Message]) -> None:
        """Forget the messages of a sender that stops; attempts that have left it may still arrive."""
        for message in unsent:
            self.deliveries[message.number].num_in_air -= 1
        for delivery in [d for d in self.deliveries.values() if d.message.sender == sender]:
            delivery.closed = True
            self._settle(delivery, SENDER_DOWN)

    def _attempt(self, delivery: Delivery) -> None:
        delivery.num_attempts += 1
        delivery.num_in_air += 1
        self.network.transmit(delivery.message)

    def _repeat(self, delivery: Delivery) -> None:
        self.network.num_bytes += delivery.message.size_bytes
        self._attempt(delivery)

    def _on_arrival(self, call: Call) -> None:
        delivery, attempt = call.subject
        delivery.num_in_air -= 1
        if self.network.obstacle(delivery.message.link) is None:
            first, delivery.arrived = not delivery.arrived, True
            self._acknowledge(delivery, attempt)
            if first:
                self.network.arrive(delivery.message)
        self._settle(delivery)

    def _acknowledge(self, delivery: Delivery, attempt: int) -> None:
        network = self.network
        network.num_bytes += self.transport.acknowledgement_bytes
        draw = ACKNOWLEDGEMENT + delivery.message.draw + attempt * ATTEMPT
        delay_s = network.crossing_s(self._back(delivery), draw)
        if delay_s is not None:
            arrives_at_s = network.kernel.now + delay_s
            delivery.acknowledgements_s.append(arrives_at_s)
            network.kernel.post(Call(self._on_acknowledgement, delivery), arrives_at_s)

    def _back(self, delivery: Delivery) -> Link:
        """Return the link on which a message is acknowledged."""
        return self.network.links[delivery.message.recipient][delivery.message.sender]

    def _on_acknowledgement(self, call: Call) -> None:
        delivery: Delivery = call.subject
        delivery.acknowledgements_s.remove(self.network.kernel.now)
        if self.network.obstacle(self._back(delivery)) is None:
            delivery.acknowledged = True

    def _on_timeout(self, call: Call) -> None:
        delivery: Delivery = call.subject
        now_s = self.network.kernel.now
        if delivery.closed:
            return  # its sender has stopped
        if now_s in delivery.acknowledgements_s:
            self.network.kernel.post(call, now_s)  # what arrives at this instant is in time
        elif not delivery.acknowledged and delivery.num_attempts < self.transport.max_attempts:
            self._repeat(delivery)
        else:
            delivery.closed = True
            self._settle(delivery)

    def _settle(self, delivery: Delivery, reason: str = "given up") -> None:
        if delivery.closed and delivery.num_in_air == 0:
            del self.deliveries[delivery.message.number]
            if not delivery.arrived:
                self.network.lose(delivery.message, reason)


def datagram() -> Transport:
    """A message is sent once; what is lost is lost."""
    return Transport()


def reliable(
    *,
    timeout_s: Annotated[Positive, Doc("how long the sender waits for the first acknowledgement")] = 1.0,
    backoff: Annotated[float, Ge(1), Le(100), Doc("each further wait is so many times longer")] = 2.0,
    max_attempts: Annotated[int, Ge(2), Le(MAX_ATTEMPTS)] = 5,
    acknowledgement_bytes: Annotated[int, Ge(0), Le(1_000_000)] = 40,
) -> Transport:
    """A message is repeated, after longer and longer waits, until it is acknowledged or given up.

    Acknowledgements cross the link in the other direction, with its delay, its losses and what is in the way
    when they leave or arrive, and need no bandwidth. A recipient gets a message once, however often it
    arrives; every attempt and every acknowledgement costs its bytes.
    """
    return Transport(max_attempts, timeout_s, backoff, acknowledgement_bytes)


TRANSPORTS: dict[str, Callable[..., Transport]] = {
    "datagram": datagram,
    "reliable": reliable,
}
