"""The SimPy environment, with the cheapest way to make something happen later."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any, Protocol

import simpy
from simpy.events import NORMAL, URGENT, EventPriority

DEADLINE = EventPriority(NORMAL + 1)
"""Events of this priority come after all others of the same instant: a message that arrives exactly at a
deadline is in time."""


class Call:
    """A function call that is to happen later: the least that SimPy's queue needs of an event.

    The function is called with the call itself, which knows its subject.
    """

    __slots__ = ("callbacks", "subject")
    _ok = True

    def __init__(self, callback: Callable[[Any], None], subject: Any = None) -> None:
        self.callbacks: tuple[Callable[[Any], None], ...] = (callback,)
        self.subject = subject


class Schedulable(Protocol):
    """What can be put into SimPy's queue: something with callbacks, which did not fail."""

    callbacks: tuple[Callable[[Any], None], ...]
    _ok: bool


class Kernel(simpy.Environment):
    """A SimPy environment that schedules more than SimPy's own events.

    A message that is its own event, with a callback, is several times cheaper than a process per message.
    """

    def post(self, event: Schedulable, time_s: float, priority: EventPriority = NORMAL) -> None:
        """Call the event's callbacks at the simulated time `time_s`."""
        # As Environment.schedule does, without a second function call: this is the way of every message.
        heappush(self._queue, (time_s, priority, next(self._eid), event))  # type: ignore[misc]

    def trigger_at_once(self, event: simpy.Event) -> None:
        """As `event.succeed()`, but before all else of this instant; nothing if it has happened already."""
        if not event.triggered:
            event._ok, event._value = True, None
            self.schedule(event, URGENT)

    def post_in(self, event: Schedulable, delay_s: float) -> None:
        """Call the event's callbacks after so many simulated seconds."""
        heappush(self._queue, (self._now + delay_s, NORMAL, next(self._eid), event))  # type: ignore[misc]


class Alarm:
    """Rings at a time that can be changed or cancelled, after everything else that happens at that instant.

    However often it is set, it has one place in the kernel's queue (or two, if it is set to an earlier time).
    """

    def __init__(self, kernel: Kernel, ring: Callable[[], None]) -> None:
        self.kernel = kernel
        self.ring = ring
        self.due_s: float | None = None
        self._queued: Call | None = None
        self._queued_s = 0.0

    def set(self, time_s: float) -> None:
        """Ring at `time_s` instead of whatever was set before."""
        self.due_s = time_s
        if self._queued is None or time_s < self._queued_s:
            self._queue()

    def cancel(self) -> None:
        """Do not ring."""
        self.due_s = None

    def _queue(self) -> None:
        assert self.due_s is not None
        self._queued, self._queued_s = Call(self._on_time), self.due_s
        self.kernel.post(self._queued, self.due_s, DEADLINE)

    def _on_time(self, call: Call) -> None:
        if call is not self._queued:
            return
        self._queued = None
        if self.due_s is None:
            return
        if self.due_s > self.kernel.now:
            self._queue()
        else:
            self.due_s = None
            self.ring()
