"""Bandwidth models: the transmission time of a message, which precedes the latency of its link.

A bandwidth model calls `done(message)` when the last byte is transmitted, in simulated time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from rdpfl_sim.components.options import Doc, Positive
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.world.kernel import Call, Kernel


@dataclass(frozen=True, kw_only=True)
class BandwidthFacts(Facts):
    """Metadata of a bandwidth model, set by its decorator."""

    is_limited: bool = True
    """Whether transmission takes time. Clients with limited bandwidth start with a different recipient in
    every round."""


BANDWIDTHS = Registry("bandwidth", BandwidthFacts)
bandwidth = BANDWIDTHS.register

Done: TypeAlias = Callable[[Any], None]


class Sized(Protocol):
    """The properties of a message that a bandwidth model uses."""

    @property
    def sender(self) -> int:
        """The client whose uplink it uses."""

    @property
    def recipient(self) -> int:
        """The client whose downlink it uses."""

    @property
    def size_bytes(self) -> float:
        """The number of bytes to transmit."""


class Bandwidth(Protocol):
    """A bandwidth model. Checkpoints contain the attributes in STATE and calls of the methods in CALLS."""

    STATE: ClassVar[tuple[str, ...]]
    CALLS: ClassVar[tuple[str, ...]]

    def transmit(self, message: Sized, done: Done) -> None:
        """Call `done(message)` when the last byte of the message is transmitted."""

    def drop(self, sender: int) -> list[Any]:
        """Remove and return the messages of a sender that are not fully transmitted."""


@bandwidth(is_limited=False)
class Unlimited:
    """Transmission takes no time."""

    STATE = ()
    CALLS = ()

    def __init__(self, kernel: Kernel) -> None:
        pass

    def transmit(self, message: Sized, done: Done) -> None:
        """Call `done(message)` immediately."""
        done(message)

    def drop(self, sender: int) -> list[Any]:
        """Return an empty list: no message is ever queued."""
        return []


class Departure(NamedTuple):
    """A message in the queue of its sender, and the end of its transmission."""

    message: Sized
    done: Done
    ends_at_s: float


@bandwidth
class Uplink:
    """Each client sends its messages one after the other, at bytes_per_s."""

    STATE = ("queues",)
    CALLS = ("_leave",)

    def __init__(
        self, kernel: Kernel, *, bytes_per_s: Annotated[Positive, Doc("uplink of a client")] = 1e6
    ) -> None:
        self.kernel = kernel
        self.bytes_per_s = bytes_per_s
        self.queues: dict[int, deque[Departure]] = {}

    def transmit(self, message: Sized, done: Done) -> None:
        """Append the message to the queue of its sender."""
        queue = self.queues.setdefault(message.sender, deque())
        begins_at_s = queue[-1].ends_at_s if queue else self.kernel.now
        departure = Departure(message, done, begins_at_s + message.size_bytes / self.bytes_per_s)
        queue.append(departure)
        self.kernel.call_at(Call(self._leave, departure), departure.ends_at_s)

    def drop(self, sender: int) -> list[Any]:
        """Empty the queue of the sender, including the message that is being transmitted."""
        return [departure.message for departure in self.queues.pop(sender, ())]

    def _leave(self, call: Call) -> None:
        departure: Departure = call.argument
        queue = self.queues.get(departure.message.sender)
        if queue and queue[0] is departure:  # otherwise it was dropped
            queue.popleft()
            departure.done(departure.message)


@dataclass(slots=True, eq=False)
class Transfer:
    """A message in transmission. At since_s, left_bytes remained; they are sent at bytes_per_s."""

    message: Sized
    done: Done
    left_bytes: float
    since_s: float
    bytes_per_s: float = 0.0  # until the rates of this instant are set
    ends_at_s: float = inf


@bandwidth
class Shared:
    """Simultaneous transfers share the uplink of their sender and the downlink of their recipient.

    The rate of a transfer is min(up / transfers of its sender, down / transfers to its recipient). It changes
    when another transfer with the same sender or recipient starts or ends. Bandwidth that a transfer cannot
    use is not given to other transfers.
    """

    STATE = ("outgoing", "incoming", "changed_senders", "changed_recipients")
    CALLS = ("_set_rates", "_end")

    def __init__(
        self,
        kernel: Kernel,
        *,
        up_bytes_per_s: Annotated[Positive, Doc("uplink of a client")] = 1e6,
        down_bytes_per_s: Annotated[Positive, Doc("downlink of a client")] = 1e6,
    ) -> None:
        self.kernel = kernel
        self.up_bytes_per_s = up_bytes_per_s
        self.down_bytes_per_s = down_bytes_per_s
        self.outgoing: dict[int, list[Transfer]] = {}
        self.incoming: dict[int, list[Transfer]] = {}
        # Clients with transfers that started or ended at this instant. Dictionaries keep the insertion order.
        self.changed_senders: dict[int, None] = {}
        self.changed_recipients: dict[int, None] = {}

    def transmit(self, message: Sized, done: Done) -> None:
        """Start a transfer, which slows down other transfers with the same sender or recipient."""
        transfer = Transfer(message, done, message.size_bytes, self.kernel.now)
        self.outgoing.setdefault(message.sender, []).append(transfer)
        self.incoming.setdefault(message.recipient, []).append(transfer)
        self._change(message)

    def drop(self, sender: int) -> list[Any]:
        """End the transfers of the sender. Other transfers to the same recipients become faster."""
        dropped = self.outgoing.get(sender, [])[:]
        for transfer in dropped:
            self._remove(transfer)
        return [transfer.message for transfer in dropped]

    def _change(self, message: Sized) -> None:
        """Schedule new rates at both ends, once for all transfers that start or end at this instant."""
        if not self.changed_senders:
            self.kernel.call_at(Call(self._set_rates), self.kernel.now)
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
        sent_bytes = transfer.bytes_per_s * (now_s - transfer.since_s)
        # Rounding may count slightly too many bytes as sent; the end must not move into the past.
        transfer.left_bytes = max(0.0, transfer.left_bytes - sent_bytes)
        transfer.since_s = now_s
        transfer.bytes_per_s = min(up, down)
        transfer.ends_at_s = now_s + transfer.left_bytes / transfer.bytes_per_s
        self.kernel.call_at(Call(self._end, transfer), transfer.ends_at_s)

    def _end(self, call: Call) -> None:
        transfer: Transfer = call.argument
        # Compare times, not left_bytes: a remainder due to rounding could be too small to advance the clock.
        if self.kernel.now != transfer.ends_at_s:
            return  # the rate has changed since this call was scheduled
        self._remove(transfer)
        transfer.done(transfer.message)

    def _remove(self, transfer: Transfer) -> None:
        transfer.ends_at_s = -inf  # `_end` ignores calls that are still scheduled
        self.outgoing[transfer.message.sender].remove(transfer)
        self.incoming[transfer.message.recipient].remove(transfer)
        self._change(transfer.message)
