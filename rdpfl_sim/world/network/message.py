"""One message on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rdpfl_sim.methods.exchange import Payload, Received

if TYPE_CHECKING:
    from rdpfl_sim.world.network.links import Link


class Letter:
    """What a client sends at once, to one neighbour or to all: a payload, stamped with a round.

    The stamp is the round that the sender claims. `form` is the payload's, or None if it is not finite.
    `fresh` is the letter as a method sees it in that round.
    """

    __slots__ = ("form", "fresh", "payload", "round", "sender", "sent_at_s", "size_bytes")

    def __init__(
        self, sender: int, round_: int, payload: Payload, size_bytes: float, sent_at_s: float
    ) -> None:
        self.sender = sender
        self.round = round_
        self.payload = payload
        self.size_bytes = size_bytes
        self.sent_at_s = sent_at_s
        self.form = payload.form if payload.is_finite else None
        self.fresh = Received(sender, 0, 1.0, payload.vector, payload.mask, payload.is_moderate)


class Message:
    """A letter on its way to one recipient.

    `number` counts the messages of the run; it identifies the message in the records. `draw` names the
    random draws that decide its fate on its link. A message is its own event on the kernel: when it arrives,
    its callback is called with it. What messages of one letter share is not copied: there are many of them.
    """

    __slots__ = ("callback", "draw", "letter", "link", "number")

    def __init__(
        self,
        number: int,
        link: Link,
        letter: Letter,
        draw: int,
        callback: Callable[[Any], None],
    ) -> None:
        self.number = number
        self.link = link
        self.letter = letter
        self.draw = draw
        self.callback = callback

    @property
    def sender(self) -> int:
        """Who has sent it."""
        return self.link.sender

    @property
    def recipient(self) -> int:
        """Who is to get it."""
        return self.link.recipient

    @property
    def round(self) -> int:
        """The round that the sender claims."""
        return self.letter.round

    @property
    def payload(self) -> Payload:
        """What it carries."""
        return self.letter.payload

    @property
    def size_bytes(self) -> float:
        """How much there is to transmit."""
        return self.letter.size_bytes

    @property
    def sent_at_s(self) -> float:
        """When it was put on its link."""
        return self.letter.sent_at_s
