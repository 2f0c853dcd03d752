"""One message on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rdpfl_sim.maths.types import Payload

if TYPE_CHECKING:
    from rdpfl_sim.world.links import Link


class Message:
    """A payload from one client to another, stamped with the round that the sender claims.

    `number` counts the messages of the run; it identifies the message in the records. `draw` names the
    random draws that decide its fate on its link. A message is its own event on the kernel: when it arrives,
    its callbacks are called with it.
    """

    __slots__ = (
        "callbacks",
        "draw",
        "link",
        "number",
        "payload",
        "recipient",
        "round",
        "sender",
        "sent_at_s",
        "size_bytes",
    )
    _ok = True

    def __init__(
        self,
        number: int,
        link: Link,
        round_: int,
        payload: Payload,
        size_bytes: float,
        sent_at_s: float,
        draw: int = 0,
        callbacks: tuple[Callable[[Any], None], ...] = (),
    ) -> None:
        self.number = number
        self.link = link
        self.sender = link.sender
        self.recipient = link.recipient
        self.round = round_
        self.payload = payload
        self.size_bytes = size_bytes
        self.sent_at_s = sent_at_s
        self.draw = draw
        self.callbacks = callbacks
