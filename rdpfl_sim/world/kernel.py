"""The SimPy environment, with the cheapest way to make something happen later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority, Timeout

DEADLINE = EventPriority(NORMAL + 1)
"""Events of this priority come after all others of the same instant: a message that arrives exactly at a
deadline is in time."""


class Kernel(simpy.Environment):
    """A SimPy environment that can call a function later.

    A scheduled event with a callback is several times cheaper than a process per message.
    """

    def call_later(self, delay_s: float, callback: Callable[[Any], None], value: Any = None) -> None:
        """Call `callback(event)` after `delay_s` simulated seconds; `event.value` is `value`."""
        Timeout(self, delay_s, value).callbacks.append(callback)

    def deadline(self, delay_s: float, callback: Callable[[Any], None], value: Any = None) -> None:
        """Like `call_later`, after everything else that happens at the same instant."""
        event = self.event()
        event._ok, event._value = (
            True,
            value,
        )  # what Timeout does; Event.succeed() takes neither delay nor priority
        event.callbacks.append(callback)
        self.schedule(event, DEADLINE, delay_s)
