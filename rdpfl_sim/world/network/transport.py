"""Transports: send every message once, or retransmit it until it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from rdpfl_sim.components.options import Doc, Positive
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.world.kernel import Call
from rdpfl_sim.world.network.links import ATTEMPT, MAX_ATTEMPTS, Link
from rdpfl_sim.world.network.message import Message

TRANSPORTS = Registry("transport", Facts)
transport = TRANSPORTS.register

if TYPE_CHECKING:
    from rdpfl_sim.world.network.network import Network

SENDER_DOWN = "sender is down"
ALL_FAILED = "all attempts failed"
ACKNOWLEDGEMENT = 1 << 60
"""Offset of the draws for acknowledgements from the draws for messages on the same link."""


@dataclass(frozen=True)
class Transport:
    """The options of a transport. Attempt n = 0, 1, ... times out after timeout_s backoff^n seconds."""

    max_attempts: int = 1
    timeout_s: float = 0.0
    backoff: float = 1.0
    acknowledgement_bytes: int = 0

    @property
    def retransmits(self) -> bool:
        """Whether recipients acknowledge messages and senders retransmit unacknowledged messages."""
        return self.max_attempts > 1


@dataclass(slots=True)
class Delivery:
    """The state of one message: its attempts and its acknowledgements."""

    message: Message
    num_attempts: int = 0
    num_in_transit: int = 0
    arrived: bool = False
    acknowledgements_s: list[float] = field(default_factory=list)
    """Arrival times of the acknowledgements in transit. An obstacle may still block them."""
    acknowledged: bool = False
    closed: bool = False
    """Whether no attempts follow: the message is acknowledged, all have failed, or the sender has stopped."""


class Reliable:
    """Acknowledgements and retransmissions on top of a network that loses messages."""

    STATE = ("deliveries",)
    CALLS = ("cross", "_on_arrival", "_on_acknowledgement", "_on_timeout")

    def __init__(self, network: Network, transport: Transport) -> None:
        self.network = network
        self.transport = transport
        self.deliveries: dict[int, Delivery] = {}

    def start(self, message: Message) -> None:
        """Make the first attempt to deliver a message."""
        self.deliveries[message.number] = delivery = Delivery(message)
        self._attempt(delivery)

    def cross(self, message: Message) -> None:
        """Schedule the sender's timeout and, unless the link loses the attempt, its arrival."""
        delivery, network = self.deliveries[message.number], self.network
        now_s, attempt = network.kernel.now, delivery.num_attempts - 1
        delay_s = network.transit_time_s(message.link, message.draw + attempt * ATTEMPT)
        if delay_s is None:
            delivery.num_in_transit -= 1
        else:
            network.kernel.call_at(Call(self._on_arrival, (delivery, attempt)), now_s + delay_s)
        timeout_s = self.transport.timeout_s * self.transport.backoff**attempt
        network.kernel.call_at(Call(self._on_timeout, delivery), now_s + timeout_s)

    def stop(self, sender: int, unsent: Iterable[Message]) -> None:
        """End all attempts of a sender that stops. Attempts in transit may still arrive."""
        for message in unsent:
            self.deliveries[message.number].num_in_transit -= 1
        for delivery in [d for d in self.deliveries.values() if d.message.sender == sender]:
            delivery.closed = True
            self._settle(delivery, SENDER_DOWN)

    def _attempt(self, delivery: Delivery) -> None:
        delivery.num_attempts += 1
        delivery.num_in_transit += 1
        self.network.transmit(delivery.message)

    def _repeat(self, delivery: Delivery) -> None:
        self.network.num_bytes += delivery.message.size_bytes
        self._attempt(delivery)

    def _on_arrival(self, call: Call) -> None:
        delivery, attempt = call.argument
        delivery.num_in_transit -= 1
        if not self._is_blocked(delivery.message.link):
            first, delivery.arrived = not delivery.arrived, True
            self._acknowledge(delivery, attempt)
            if first:
                self.network.arrive(delivery.message)
        self._settle(delivery)

    def _acknowledge(self, delivery: Delivery, attempt: int) -> None:
        network = self.network
        network.num_bytes += self.transport.acknowledgement_bytes
        draw = ACKNOWLEDGEMENT + delivery.message.draw + attempt * ATTEMPT
        delay_s = network.transit_time_s(self._reverse_link(delivery), draw)
        if delay_s is not None:
            arrives_at_s = network.kernel.now + delay_s
            delivery.acknowledgements_s.append(arrives_at_s)
            network.kernel.call_at(Call(self._on_acknowledgement, delivery), arrives_at_s)

    def _reverse_link(self, delivery: Delivery) -> Link:
        return self.network.links[delivery.message.recipient][delivery.message.sender]

    def _on_acknowledgement(self, call: Call) -> None:
        delivery: Delivery = call.argument
        delivery.acknowledgements_s.remove(self.network.kernel.now)
        if not self._is_blocked(self._reverse_link(delivery)):
            delivery.acknowledged = True

    def _on_timeout(self, call: Call) -> None:
        delivery: Delivery = call.argument
        now_s = self.network.kernel.now
        if delivery.closed:
            return  # the sender has stopped
        if now_s in delivery.acknowledgements_s:
            self.network.kernel.call_at(call, now_s)  # after the acknowledgement that arrives at this instant
        elif not delivery.acknowledged and delivery.num_attempts < self.transport.max_attempts:
            self._repeat(delivery)
        else:
            delivery.closed = True
            self._settle(delivery)

    def _is_blocked(self, link: Link) -> bool:
        return self.network.obstacles.reason(link.sender, link.recipient) is not None

    def _settle(self, delivery: Delivery, reason: str = ALL_FAILED) -> None:
        if delivery.closed and delivery.num_in_transit == 0:
            del self.deliveries[delivery.message.number]
            if not delivery.arrived:
                self.network.lose(delivery.message, reason)


@transport
def datagram() -> Transport:
    """Every message is sent once; lost messages are not retransmitted."""
    return Transport()


@transport
def reliable(
    *,
    timeout_s: Annotated[Positive, Doc("time until the first retransmission")] = 1.0,
    backoff: Annotated[float, Ge(1), Le(100), Doc("ratio of successive timeouts")] = 2.0,
    max_attempts: Annotated[int, Ge(2), Le(MAX_ATTEMPTS), Doc("attempts, the first included")] = 5,
    acknowledgement_bytes: Annotated[int, Ge(0), Le(1_000_000), Doc("size of an acknowledgement")] = 40,
) -> Transport:
    """A message is retransmitted after each timeout, until it is acknowledged or all attempts have failed.

    Acknowledgements cross the link in the other direction. They are subject to its delay, losses and
    obstacles, but use no bandwidth. A recipient receives a message once, even if several attempts arrive.
    Every attempt and every acknowledgement counts towards the bytes sent.
    """
    return Transport(max_attempts, timeout_s, backoff, acknowledgement_bytes)
