"""Whether a sender makes sure that its messages arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from rdpfl_sim.options import Doc, Positive
from rdpfl_sim.world.kernel import Call
from rdpfl_sim.world.links import ATTEMPT, MAX_ATTEMPTS
from rdpfl_sim.world.message import Message

if TYPE_CHECKING:
    from rdpfl_sim.world.network import Network

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
    acknowledged_at_s: float = inf
    closed: bool = False
    """The sender has stopped trying: the message is acknowledged, or given up."""


class Reliable:
    """Acknowledges and retransmits on top of a network that loses messages."""

    STATE = ("deliveries",)
    CALLS = ("leave", "_on_arrival", "_on_timeout")

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
        message, network = delivery.message, self.network
        network.num_bytes += self.transport.acknowledgement_bytes
        back = network.links[message.recipient][message.sender]
        draw = ACKNOWLEDGEMENT + message.draw + attempt * ATTEMPT
        delay_s = network.crossing_s(back, draw)
        if delay_s is not None:
            delivery.acknowledged_at_s = min(delivery.acknowledged_at_s, network.kernel.now + delay_s)

    def _on_timeout(self, call: Call) -> None:
        delivery: Delivery = call.subject
        acknowledged = delivery.acknowledged_at_s <= self.network.kernel.now
        sender_lives = delivery.message.sender not in self.network.down
        if not acknowledged and sender_lives and delivery.num_attempts < self.transport.max_attempts:
            self._repeat(delivery)
        else:
            delivery.closed = True
            self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        if delivery.closed and delivery.num_in_air == 0:
            del self.deliveries[delivery.message.number]
            if not delivery.arrived:
                self.network.lose(delivery.message, "given up")


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

    Acknowledgements cross the link in the other direction, with its delay and its losses, and need no
    bandwidth. A recipient gets a message once, however often it arrives; every attempt and every
    acknowledgement costs its bytes.
    """
    return Transport(max_attempts, timeout_s, backoff, acknowledgement_bytes)


TRANSPORTS: dict[str, Callable[..., Transport]] = {
    "datagram": datagram,
    "reliable": reliable,
}
