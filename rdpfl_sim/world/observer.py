"""The observer interface: one method per event of the simulated world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rdpfl_sim.methods.batching import Updated
from rdpfl_sim.world.faults.fault import Change
from rdpfl_sim.world.network.message import Message


class UsedMessage(NamedTuple):
    """A message that a client has used, without its content. `round` is the round that the sender claims."""

    number: int
    sender: int
    recipient: int
    round: int


class Observer:
    """Called on every event. These methods do nothing; the recorder overrides them."""

    def training_started(self, client: int, round_: int, duration_s: float) -> None:
        """A client started its local training."""

    def training_finished(self, client: int, round_: int, loss: float, num_steps: int) -> None:
        """A client finished its local training."""

    def message_sent(self, message: Message) -> None:
        """A client sent a message."""

    def message_copied(self, message: Message, original: int) -> None:
        """The network duplicated the message with the number `original`."""

    def message_lost(self, message: Message, reason: str) -> None:
        """A message will never arrive."""

    def message_delivered(self, message: Message) -> None:
        """A message reached its recipient."""

    def message_dropped(self, message: Message, outcome: str, reason: str) -> None:
        """The recipient dropped a message; the outcome is stale, duplicate or rejected."""

    def round_finished(self, client: int, round_: int, messages: Sequence[UsedMessage]) -> None:
        """A client finished a round in which it used these messages."""

    def update_reported(
        self, client: int, round_: int, messages: Sequence[UsedMessage], updated: Updated
    ) -> None:
        """The update of a finished round is available."""

    def changed(self, fault: int, change: Change) -> None:
        """A fault changes the world. `fault` is its position in the scenario."""
