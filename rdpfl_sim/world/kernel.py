"""The SimPy environment, with the cheapest way to make something happen later."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol, cast

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, Event, EventPriority
from typing_extensions import override

DEADLINE = EventPriority(NORMAL + 1)
"""Events of this priority come after all others of the same instant: a message that arrives exactly at a
deadline is in time."""


class Call:
    """A function call that is to happen later: the least that can be an event.

    The function is called with the call itself, which knows its subject.
    """

    __slots__ = ("callback", "subject")

    def __init__(self, callback: Callable[[Any], None], subject: Any = None) -> None:
        self.callback = callback
        self.subject = subject


class Callback(Protocol):
    """What can be put into the queue besides SimPy's events: something that is called with itself."""

    @property
    def callback(self) -> Callable[[Any], None]:
        """What to call."""


class Kernel(simpy.Environment):
    """A SimPy environment whose queue holds more than SimPy's own events.

    A message that is its own event, with a callback, is several times cheaper than a process per message.
    """

    STATE = ("_now",)

    def __init__(self, initial_time: float = 0.0) -> None:
        super().__init__(initial_time)
        self.is_paused = False

    @property
    def queue(self) -> list[tuple[float, EventPriority, Any]]:
        """What is to happen, and when, in its order."""
        return [(time_s, priority, event) for time_s, priority, _, event in sorted(self._queue)]

    def post(self, event: Callback, time_s: float, priority: EventPriority = NORMAL) -> None:
        """Have the event's callback called at the simulated time `time_s`."""
        # As Environment.schedule does, without a second function call: this is the way of every message.
        heappush(self._queue, (time_s, priority, next(self._eid), event))  # type: ignore[misc]

    def fire(self, event: Event, time_s: float, priority: EventPriority = NORMAL) -> Event:
        """Let a plain SimPy event happen at a time that is known by now, and return it."""
        event._ok, event._value = True, None
        heappush(self._queue, (time_s, priority, next(self._eid), event))
        return event

    def fire_at_once(self, event: Event) -> None:
        """Let a SimPy event happen before this returns; but after what else is due at this instant."""
        if self._queue and self._queue[0][0] <= self._now:
            self.fire(event, self._now)
        else:
            event._ok, event._value = True, None
            self._happen(event)

    def run_on(self) -> None:
        """Let one event after the other happen, at least one, until somebody calls `pause`."""
        queue: list[Any] = self._queue
        try:
            while True:
                if not queue:
                    raise EmptySchedule
                self._now, _, _, event = heappop(queue)
                if isinstance(event, Event):
                    self._happen(event)
                else:
                    event.callback(event)
                if self.is_paused:
                    return
        finally:
            self.is_paused = False

    def pause(self) -> None:
        """Let nothing happen after the present event, until `run_on` is called again."""
        self.is_paused = True

    @override
    def step(self) -> None:
        """Let the next event happen."""
        self.pause()
        self.run_on()

    def _happen(self, event: Event) -> None:
        """Call the callbacks of a SimPy event, as SimPy does."""
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)
        if not event._ok and not hasattr(event, "_defused"):
            raise cast(BaseException, event._value)  # a process has failed


class Alarm:
    """Rings at a time that can be changed or cancelled, after everything else that happens at that instant.

    However often it is set, it has one place in the kernel's queue (or two, if it is set to an earlier time).
    """

    STATE = ("due_s", "queued_s")
    CALLS = ("_on_time",)

    def __init__(self, kernel: Kernel, ring: Callable[[], None]) -> None:
        self.kernel = kernel
        self.ring = ring
        self.due_s: float | None = None
        self.queued_s: float | None = None
        """When its place in the queue is; what else is in the queue has been superseded."""

    def set(self, time_s: float) -> None:
        """Ring at `time_s` instead of whatever was set before."""
        self.due_s = time_s
        if self.queued_s is None or time_s < self.queued_s:
            self._queue()

    def cancel(self) -> None:
        """Do not ring."""
        self.due_s = None

    def _queue(self) -> None:
        assert self.due_s is not None
        self.queued_s = self.due_s
        self.kernel.post(Call(self._on_time), self.due_s, DEADLINE)

    def _on_time(self, _: Call) -> None:
        if self.kernel.now != self.queued_s:
            return
        self.queued_s = None
        if self.due_s is None:
            return
        if self.due_s > self.kernel.now:
            self._queue()
        else:
            self.due_s = None
            self.ring()
