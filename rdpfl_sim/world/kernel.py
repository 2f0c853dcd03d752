"""The SimPy environment, extended with plain callbacks, which are cheaper than processes."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol, cast

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, URGENT, Event, EventPriority
from typing_extensions import override

FAULT = URGENT
"""Priority of faults, which take effect before all other events of an instant."""

DEADLINE = EventPriority(NORMAL + 1)
"""Priority of deadlines, which follow the faults and messages of an instant. A message that arrives exactly
at a deadline is therefore in time."""

EVALUATION = EventPriority(DEADLINE + 1)
"""Priority of evaluations, which follow all other events of an instant."""


class Callback(Protocol):
    """An entry of the queue that is not a SimPy event: `callback` is called with the entry itself."""

    @property
    def callback(self) -> Callable[[Any], None]:
        """The function to call."""


class Call:
    """A function to call later, and data for it. The function is called with the `Call`."""

    __slots__ = ("argument", "callback")

    def __init__(self, callback: Callable[[Any], None], argument: Any = None) -> None:
        self.callback = callback
        self.argument = argument


class Kernel(simpy.Environment):
    """A SimPy environment whose queue also contains callbacks.

    A callback per message is several times cheaper than a process per message.
    """

    STATE = ("_now",)

    def __init__(self, initial_time: float = 0.0) -> None:
        super().__init__(initial_time)
        self.is_paused = False

    @property
    def queue(self) -> list[tuple[float, EventPriority, Any]]:
        """Scheduled events and callbacks, in order."""
        return [(time_s, priority, event) for time_s, priority, _, event in sorted(self._queue)]

    def call_at(self, event: Callback, time_s: float, priority: EventPriority = NORMAL) -> None:
        """Schedule a callback."""
        # Same as Environment.schedule, but without a second function call: this runs for every message.
        heappush(self._queue, (time_s, priority, next(self._eid), event))  # type: ignore[misc]

    def trigger_at(self, event: Event, time_s: float, priority: EventPriority = NORMAL) -> Event:
        """Schedule a plain SimPy event for a known time, and return it.

        As with a SimPy timeout, `event.triggered` is true immediately.
        """
        event._ok, event._value = True, None
        heappush(self._queue, (time_s, priority, next(self._eid), event))
        return event

    def run_until_paused(self) -> None:
        """Process events, at least one, until `pause` is called."""
        queue: list[Any] = self._queue
        try:
            while True:
                if not queue:
                    raise EmptySchedule
                self._now, _, _, event = heappop(queue)
                if isinstance(event, Event):
                    self._process_event(event)
                else:
                    event.callback(event)
                if self.is_paused:
                    return
        finally:
            self.is_paused = False

    def pause(self) -> None:
        """Stop after the current event."""
        self.is_paused = True

    @override
    def step(self) -> None:
        """Process the next event."""
        self.pause()
        self.run_until_paused()

    def _process_event(self, event: Event) -> None:
        """Call the callbacks of a SimPy event, as SimPy does."""
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)
        if not event._ok and not hasattr(event, "_defused"):
            raise cast(BaseException, event._value)  # a process has failed


class Timer:
    """Calls a function at a time that can be changed or cancelled, with the priority of deadlines.

    A timer has one entry in the kernel's queue, however often it is set, or two if it is set to an earlier
    time.
    """

    STATE = ("deadline_s", "scheduled_s")
    CALLS = ("_on_time",)

    def __init__(self, kernel: Kernel, callback: Callable[[], None]) -> None:
        self.kernel = kernel
        self.callback = callback
        self.deadline_s: float | None = None
        self.scheduled_s: float | None = None
        """Time of the timer's entry in the queue. Entries at other times are obsolete."""

    def set(self, time_s: float) -> None:
        """Call the function at `time_s`. This replaces an earlier setting."""
        self.deadline_s = time_s
        if self.scheduled_s is None or time_s < self.scheduled_s:
            self._schedule()

    def cancel(self) -> None:
        """Do not call the function."""
        self.deadline_s = None

    def _schedule(self) -> None:
        assert self.deadline_s is not None
        self.scheduled_s = self.deadline_s
        self.kernel.call_at(Call(self._on_time), self.deadline_s, DEADLINE)

    def _on_time(self, _: Call) -> None:
        if self.kernel.now != self.scheduled_s:
            return
        self.scheduled_s = None
        if self.deadline_s is None:
            return
        if self.deadline_s > self.kernel.now:
            self._schedule()
        else:
            self.deadline_s = None
            self.callback()
