"""Handle Ctrl-C: the first stops the run between two events, the second stops it immediately."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGINT or SIGTERM, so that a run ends between two events with complete records.

    A second signal has its usual effect. Signals that the process ignores (nohup) stay ignored. Outside the
    main thread, no handler is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: Any) -> None:
        restore()
        stop()

    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield
    finally:
        restore()
