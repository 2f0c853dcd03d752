"""The SimPy environment, with the cheapest way to make something happen later."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any, Protocol

import simpy
from simpy.events import NORMAL, EventPriority

DEADLINE = EventPriority(NORMAL + 1)
"""Events of this priority come after all others of the same instant: a message that arrives exactly at a
deadline is in time."""


class Schedulable(Protocol):
    """The least that SimPy's queue needs of an event: callbacks, and that it did not fail."""

    callbacks: tuple[Callable[[Any], None], ...]
    _ok: bool


class Call:
    """A function call that is to happen later."""

    __slots__ = ("callbacks", "value")
    _ok = True

    def __init__(self, callback: Callable[[Any], None], value: Any) -> None:
        self.callbacks: tuple[Callable[[Any], None], ...] = (callback,)
        self.value = value


class Kernel(simpy.Environment):
    """A SimPy environment that schedules more than SimPy's own events.

    A message that is its own event, with a callback, is several times cheaper than a process per message.
    """

    def post(self, event: Schedulable, delay_s: float, priority: EventPriority = NORMAL) -> None:
        """Call the event's callbacks after `delay_s` simulated seconds."""
        # As Environment.schedule does, without a second function call: this is the way of every message.
        heappush(self._queue, (self._now + delay_s, priority, next(self._eid), event))  # type: ignore[misc]

    def call_later(
        self,
        delay_s: float,
        callback: Callable[[Any], None],
        value: Any = None,
        priority: EventPriority = NORMAL,
    ) -> None:
        """Call `callback(call)` after `delay_s` simulated seconds; `call.value` is `value`."""
        self.post(Call(callback, value), delay_s, priority)
