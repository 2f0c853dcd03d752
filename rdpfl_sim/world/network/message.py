"""Messages: one broadcast becomes one message per recipient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rdpfl_sim.methods.base import Payload
from rdpfl_sim.world.network.links import ROUND, Link


class Broadcast:
    """A payload that a client sends to one or more neighbours at the same time.

    `round` is the round that the sender claims.
    """

    __slots__ = ("payload", "round", "sender", "sent_at_s", "size_bytes")

    def __init__(
        self, sender: int, round_: int, payload: Payload, size_bytes: float, sent_at_s: float
    ) -> None:
        self.sender = sender
        self.round = round_
        self.payload = payload
        self.size_bytes = size_bytes
        self.sent_at_s = sent_at_s


class Message:
    """A broadcast in transit to one recipient.

    `number` counts the messages of the run and identifies the message in the records. `draw` identifies the
    random draws that determine whether and when it arrives. The message itself is the entry in the kernel's
    queue: on arrival, the kernel calls `callback(message)`. All messages of a broadcast share it, to save
    memory.
    """

    __slots__ = ("broadcast", "callback", "draw", "link", "number")

    def __init__(
        self,
        number: int,
        link: Link,
        broadcast: Broadcast,
        draw: int,
        callback: Callable[[Any], None],
    ) -> None:
        self.number = number
        self.link = link
        self.broadcast = broadcast
        self.draw = draw
        self.callback = callback

    @property
    def sender(self) -> int:
        """The client at the start of the link."""
        return self.link.sender

    @property
    def recipient(self) -> int:
        """The client at the end of the link."""
        return self.link.recipient

    @property
    def round(self) -> int:
        """The round that the sender claims."""
        return self.broadcast.round

    @property
    def true_round(self) -> int:
        """The sender's actual round, which may differ from the round that it claims."""
        return self.draw // ROUND

    @property
    def payload(self) -> Payload:
        """The content, shared by all messages of the broadcast."""
        return self.broadcast.payload

    @property
    def size_bytes(self) -> float:
        """The number of bytes to transmit, after compression."""
        return self.broadcast.size_bytes

    @property
    def sent_at_s(self) -> float:
        """The simulated time at which the sender passed it to the network."""
        return self.broadcast.sent_at_s
