"""Links between clients: they delay messages, queue them behind each other, and lose them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rdpfl_sim.maths.types import Payload
from rdpfl_sim.options import Positive, Probability
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.world.distributions import Latency
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.message import Message
from rdpfl_sim.world.observer import Observer


def lossless(u: float) -> bool:
    """Nothing is lost."""
    return False


def bernoulli(u: float, *, probability: Probability = 0.1) -> bool:
    """Every message is lost with the same probability, independently of all others."""
    return u < probability


LOSSES: dict[str, Callable[..., bool]] = {
    "none": lossless,
    "bernoulli": bernoulli,
}


def unlimited(size_bytes: int) -> float:
    """Transmission takes no time."""
    return 0.0


def uplink(size_bytes: int, *, bytes_per_s: Positive = 1e6) -> float:
    """A sender's messages leave one after the other, at bytes_per_s."""
    return size_bytes / bytes_per_s


BANDWIDTHS: dict[str, Callable[..., float]] = {
    "unlimited": unlimited,
    "uplink": uplink,
}


@dataclass(slots=True)
class Link:
    """A directed link: the key of its random stream and the number of messages it has carried."""

    key: int
    num_sent: int = 0


class Network:
    """All links, the senders' queues, and the messages in flight."""

    def __init__(
        self,
        kernel: Kernel,
        neighbours: Sequence[Sequence[int]],
        streams: Streams,
        observer: Observer,
        *,
        latency: Latency,
        loses: Callable[[float], bool],
        transmission_s: Callable[[int], float],
    ) -> None:
        self.kernel = kernel
        self.on_arrival = (self._arrive,)
        self.observer = observer
        self.latency = latency
        self.loses = loses
        self.transmission_s = transmission_s
        self.links = [
            {recipient: Link(streams.key("link", sender, recipient)) for recipient in recipients}
            for sender, recipients in enumerate(neighbours)
        ]
        self.uplink_free_at_s = [0.0] * len(neighbours)
        self.receivers: list[Callable[[Message], None]] = []
        self.in_flight: dict[int, Message] = {}
        self.num_sent = 0
        self.num_lost = 0
        self.num_delivered = 0

    def send(self, sender: int, round_: int, payloads: Mapping[int, Payload]) -> None:
        """Put a message to each recipient on its link; each is delivered later, or lost."""
        now_s, links, loses = self.kernel.now, self.links[sender], self.loses
        queued = self.transmission_s is not unlimited
        for recipient in _rotated(list(payloads), round_) if queued else payloads:
            payload = payloads[recipient]
            number = self.num_sent
            self.num_sent = number + 1
            message = Message(number, sender, recipient, round_, payload, now_s, self.on_arrival)
            self.observer.message_sent(message)
            queue_s = self._queue(sender, payload.size_bytes) if queued else 0.0

            link = links[recipient]
            draw = 2 * link.num_sent
            link.num_sent += 1
            if loses is not lossless and loses(uniform(link.key, draw)):
                self.num_lost += 1
                self.observer.message_lost(message)
                continue
            self.in_flight[number] = message
            message.arrives_at_s = now_s + queue_s + self.latency(uniform(link.key, draw + 1))
            self.kernel.post(message, message.arrives_at_s)

    def _queue(self, sender: int, size_bytes: int) -> float:
        """Seconds until a message has left its sender, behind those that the sender is still sending."""
        now_s: float = self.kernel.now
        leaves_at_s = max(now_s, self.uplink_free_at_s[sender]) + self.transmission_s(size_bytes)
        self.uplink_free_at_s[sender] = leaves_at_s
        return leaves_at_s - now_s

    def _arrive(self, message: Message) -> None:
        del self.in_flight[message.number]
        self.num_delivered += 1
        self.observer.message_delivered(message)
        self.receivers[message.recipient](message)


def _rotated(recipients: list[int], round_: int) -> list[int]:
    """Another recipient is first in the queue every round, so that nobody is always last."""
    first = round_ % len(recipients) if recipients else 0
    return recipients[first:] + recipients[:first]
