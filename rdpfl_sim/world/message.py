"""One message on its way."""

from __future__ import annotations

from dataclasses import dataclass

from rdpfl_sim.maths.types import Payload


@dataclass(slots=True, eq=False)
class Message:
    """A payload from one client to another, stamped with the sender's round.

    `number` counts the messages of the run; it identifies the message in the records.
    """

    number: int
    sender: int
    recipient: int
    round: int
    payload: Payload
    sent_at_s: float
