"""Settings of the whole process that a run needs, while other runs may go on in other threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class ProcessWide(Generic[T]):
    """A setting that the first run changes, and the last one that ends puts back."""

    def __init__(self, value: T, get: Callable[[], T], set_: Callable[[T], None]) -> None:
        self.value = value
        self.get = get
        self.set = set_
        self.num_runs = 0
        self.before = value
        self.lock = Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the setting have its value for a while."""
        with self.lock:
            if self.num_runs == 0:
                self.before = self.get()
                self.set(self.value)
            self.num_runs += 1
        try:
            yield
        finally:
            with self.lock:
                self.num_runs -= 1
                if self.num_runs == 0:
                    self.set(self.before)
