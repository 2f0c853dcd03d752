"""How long messages take to leave their senders, and which of them have to share.

A bandwidth calls `done(message)` at the simulated time at which the last byte of the message is through.
What the link adds afterwards is latency, and not decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol, TypeAlias

from rdpfl_sim.components.options import Positive
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.world.kernel import Call, Kernel

BANDWIDTHS = Registry("bandwidth", Facts)
bandwidth = BANDWIDTHS.register

Done: TypeAlias = Callable[[Any], None]


class Sized(Protocol):
    """What a bandwidth has to know of a message."""

    @property
    def sender(self) -> int:
        """Whose uplink it needs."""

    @property
    def recipient(self) -> int:
        """Whose downlink it needs."""

    @property
    def size_bytes(self) -> float:
        """How much there is to transmit."""


class Bandwidth(Protocol):
    """What every bandwidth does."""

    def transmit(self, message: Sized, done: Done) -> None:
        """Call `done(message)` as soon as the last byte of the message is through."""

    def drop(self, sender: int) -> list[Any]:
        """Remove and return the messages of a sender whose last byte is not through."""


@bandwidth
class Unlimited:
    """Transmission takes no time."""

    STATE = ()
    CALLS = ()

    def __init__(self, kernel: Kernel) -> None:
        pass

    def transmit(self, message: Sized, done: Done) -> None:
        """Call `done(message)` at once."""
        done(message)

    def drop(self, sender: int) -> list[Any]:
        """Return nothing: no message is ever queued."""
        return []


class Departure(NamedTuple):
    """A message in its sender's queue, and when it will have left."""

    message: Sized
    done: Done
    ends_at_s: float


@bandwidth
class Uplink:
    """A sender's messages leave one after the other, at bytes_per_s."""

    STATE = ("queues",)
    CALLS = ("_leave",)

    def __init__(self, kernel: Kernel, *, bytes_per_s: Positive = 1e6) -> None:
        self.kernel = kernel
        self.bytes_per_s = bytes_per_s
        self.queues: dict[int, deque[Departure]] = {}

    def transmit(self, message: Sized, done: Done) -> None:
        """Put the message behind those that its sender is still sending."""
        queue = self.queues.setdefault(message.sender, deque())
        begins_at_s = queue[-1].ends_at_s if queue else self.kernel.now
        departure = Departure(message, done, begins_at_s + message.size_bytes / self.bytes_per_s)
        queue.append(departure)
        self.kernel.post(Call(self._leave, departure), departure.ends_at_s)

    def drop(self, sender: int) -> list[Any]:
        """Empty the sender's queue; the message being sent is part of it."""
        return [departure.message for departure in self.queues.pop(sender, ())]

    def _leave(self, call: Call) -> None:
        departure: Departure = call.subject
        queue = self.queues.get(departure.message.sender)
        if queue and queue[0] is departure:  # else it was dropped
            queue.popleft()
            departure.done(departure.message)


@dataclass(slots=True, eq=False)
class Transfer:
    """A message on its way: left_bytes were left at since_s, and go at bytes_per_s from then on."""

    message: Sized
    done: Done
    left_bytes: float
    since_s: float
    bytes_per_s: float = 0.0  # until the rates of this instant are set
    ends_at_s: float = inf


@bandwidth
class Shared:
    """Transfers share their sender's uplink and their recipient's downlink with all others of the moment.

    The rate of a transfer is min(up / transfers of its sender, down / transfers to its recipient): it changes
    when another begins or ends there, and what a transfer leaves of its share stays unused.
    """

    STATE = ("outgoing", "incoming", "changed_senders", "changed_recipients")
    CALLS = ("_set_rates", "_end")

    def __init__(
        self, kernel: Kernel, *, up_bytes_per_s: Positive = 1e6, down_bytes_per_s: Positive = 1e6
    ) -> None:
        self.kernel = kernel
        self.up_bytes_per_s = up_bytes_per_s
        self.down_bytes_per_s = down_bytes_per_s
        self.outgoing: dict[int, list[Transfer]] = {}
        self.incoming: dict[int, list[Transfer]] = {}
        # Where transfers began or ended at this instant; dictionaries, as the order of a set may vary.
        self.changed_senders: dict[int, None] = {}
        self.changed_recipients: dict[int, None] = {}

    def transmit(self, message: Sized, done: Done) -> None:
        """Begin a transfer, which slows down those that share an end with it."""
        transfer = Transfer(message, done, message.size_bytes, self.kernel.now)
        self.outgoing.setdefault(message.sender, []).append(transfer)
        self.incoming.setdefault(message.recipient, []).append(transfer)
        self._change(message)

    def drop(self, sender: int) -> list[Any]:
        """End the sender's transfers; what shares a recipient with them becomes faster."""
        dropped = self.outgoing.get(sender, [])[:]
        for transfer in dropped:
            self._remove(transfer)
        return [transfer.message for transfer in dropped]

    def _change(self, message: Sized) -> None:
        """Have the rates at both ends set anew, once for all that begins and ends at this instant."""
        if not self.changed_senders:
            self.kernel.post(Call(self._set_rates), self.kernel.now)
        self.changed_senders[message.sender] = None
        self.changed_recipients[message.recipient] = None

    def _set_rates(self, _: Call) -> None:
        for sender in self.changed_senders:
            for transfer in self.outgoing[sender]:
                self._set_rate(transfer)
        for recipient in self.changed_recipients:
            for transfer in self.incoming[recipient]:
                self._set_rate(transfer)
        self.changed_senders.clear()
        self.changed_recipients.clear()

    def _set_rate(self, transfer: Transfer) -> None:
        up = self.up_bytes_per_s / len(self.outgoing[transfer.message.sender])
        down = self.down_bytes_per_s / len(self.incoming[transfer.message.recipient])
        if min(up, down) == transfer.bytes_per_s:
            return
        now_s = self.kernel.now
        gone_bytes = transfer.bytes_per_s * (now_s - transfer.since_s)
        # Rounding may count a little too much as gone, which must not put the end into the past.
        transfer.left_bytes = max(0.0, transfer.left_bytes - gone_bytes)
        transfer.since_s = now_s
        transfer.bytes_per_s = min(up, down)
        transfer.ends_at_s = now_s + transfer.left_bytes / transfer.bytes_per_s
        self.kernel.post(Call(self._end, transfer), transfer.ends_at_s)

    def _end(self, call: Call) -> None:
        transfer: Transfer = call.subject
        # The time decides, not left_bytes: a rest that rounding left could be too small to move the clock.
        if self.kernel.now != transfer.ends_at_s:
            return  # the rate has changed since this call was posted
        self._remove(transfer)
        transfer.done(transfer.message)

    def _remove(self, transfer: Transfer) -> None:
        transfer.ends_at_s = -inf  # calls for it may still be in the queue
        self.outgoing[transfer.message.sender].remove(transfer)
        self.incoming[transfer.message.recipient].remove(transfer)
        self._change(transfer.message)
