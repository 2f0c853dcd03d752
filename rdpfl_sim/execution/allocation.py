"""Settings for memory allocation and garbage collection that make runs faster.

glibc returns large blocks to the operating system as soon as they are freed. A training step of a
convolutional model frees and allocates the same large blocks repeatedly, and each time the system clears
every page.

By default, Python often searches new objects for reference cycles, and occasionally all objects. A simulation
of many clients allocates constantly but creates no cycles, so the search mostly visits messages in flight.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import AbstractContextManager

from rdpfl_sim.execution.process_settings import ProcessWide

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""

MAX_MMAP_THRESHOLD = 32 << 20
"""The largest value that glibc accepts for M_MMAP_THRESHOLD."""

GC_THRESHOLDS = 100_000, 50, 100
"""Thresholds of Python's garbage collector during a run. They make collections rare."""

_thresholds = ProcessWide(GC_THRESHOLDS, gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds))


def gc_paused() -> AbstractContextManager[None]:
    """Return a context in which Python rarely collects garbage."""
    return _thresholds.applied()


def keep_freed_memory() -> None:
    """Keep freed memory in this process for reuse. This has no effect without glibc."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
