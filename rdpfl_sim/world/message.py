"""One message on its way."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from rdpfl_sim.maths.types import Payload


class Message:
    """A payload from one client to another, stamped with the sender's round.

    `number` counts the messages of the run; it identifies the message in the records. A message is its own
    event on the kernel: when it arrives, its callbacks are called with it.
    """

    __slots__ = (
        "arrives_at_s",
        "callbacks",
        "number",
        "payload",
        "recipient",
        "round",
        "sender",
        "sent_at_s",
    )
    _ok = True

    def __init__(
        self,
        number: int,
        sender: int,
        recipient: int,
        round_: int,
        payload: Payload,
        sent_at_s: float,
        callbacks: tuple[Callable[[Any], None], ...] = (),
    ) -> None:
        self.number = number
        self.sender = sender
        self.recipient = recipient
        self.round = round_
        self.payload = payload
        self.sent_at_s = sent_at_s
        self.callbacks = callbacks
        self.arrives_at_s = inf  # until the link has decided
