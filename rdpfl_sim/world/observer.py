"""What the world tells about itself. `Observer` is silent; the recorder overrides it."""

from __future__ import annotations

from collections.abc import Sequence

from rdpfl_sim.methods.base import Inspection
from rdpfl_sim.methods.deferred import Update
from rdpfl_sim.world.faults.fault import Change
from rdpfl_sim.world.network.message import Message


class Observer:
    """Hears everything that happens and does nothing."""

    inspects = False
    """Whether it wants to know how methods treat single messages, which takes time to find out."""

    def training_started(self, client: int, round_: int, duration_s: float) -> None:
        """A client began its local training."""

    def training_finished(self, client: int, round_: int, loss: float, num_steps: int) -> None:
        """A client ended its local training."""

    def message_sent(self, message: Message) -> None:
        """A message was put on its link."""

    def message_copied(self, message: Message, original: int) -> None:
        """The network made a second message out of the one with the number `original`."""

    def message_lost(self, message: Message, reason: str) -> None:
        """A message will never arrive."""

    def message_delivered(self, message: Message) -> None:
        """A message reached its recipient's mailbox."""

    def message_dropped(self, message: Message, fate: str, reason: str) -> None:
        """The recipient dropped a message: fate is stale, duplicate or rejected."""

    def round_finished(
        self,
        client: int,
        round_: int,
        messages: Sequence[Message],
        update: Update,
        inspection: Inspection | None,
    ) -> None:
        """A client used these messages to update its model; the update's diagnostics may come later."""

    def changed(self, fault: int, change: Change) -> None:
        """The world changes: the fault with this position in the scenario begins, goes on or ends."""
