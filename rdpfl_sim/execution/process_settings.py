"""Process-wide settings that runs in several threads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class ProcessWide(Generic[T]):
    """A setting that the first concurrent run changes and the last one restores."""

    def __init__(self, value: T, get: Callable[[], T], set_: Callable[[T], None]) -> None:
        self.value = value
        self.get = get
        self.set = set_
        self.num_runs = 0
        self.previous = value
        self.lock = Lock()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the value inside a context."""
        with self.lock:
            if self.num_runs == 0:
                self.previous = self.get()
                self.set(self.value)
            self.num_runs += 1
        try:
            yield
        finally:
            with self.lock:
                self.num_runs -= 1
                if self.num_runs == 0:
                    self.set(self.previous)
