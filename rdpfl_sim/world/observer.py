"""What the world tells about itself. `Observer` is silent; the recorder overrides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rdpfl_sim.maths.types import Received
from rdpfl_sim.world.message import Message


class Observer:
    """Hears everything that happens and does nothing."""

    def training_started(self, client: int, round_: int, duration_s: float) -> None:
        """A client began its local training."""

    def training_finished(self, client: int, round_: int, loss: float, num_steps: int) -> None:
        """A client ended its local training."""

    def message_sent(self, message: Message) -> None:
        """A message was put on its link."""

    def message_lost(self, message: Message) -> None:
        """The link lost a message."""

    def message_delivered(self, message: Message) -> None:
        """A message reached its recipient's mailbox."""

    def message_used(self, message: Message, round_: int) -> None:
        """The recipient used a message in its round `round_`."""

    def message_dropped(self, message: Message, fate: str, reason: str) -> None:
        """The recipient dropped a message: fate is stale, duplicate or rejected."""

    def round_finished(
        self, client: int, round_: int, received: Sequence[Received], diagnostics: Mapping[str, Any]
    ) -> None:
        """A client updated its model from the messages that it had received; the method reports on it."""
