"""Memory that is given back and asked for again in every training step.

glibc returns large blocks to the system as soon as they are freed. A training step of a convolutional model
frees and allocates the same blocks of megabytes again and again, and each time the system clears every page.

Python looks for cycles of garbage whenever 700 more objects were made than freed, and now and then among all
objects. A world of many clients makes and frees objects all the time, in no cycles: what is looked through is
mostly messages on their way.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import AbstractContextManager

from rdpfl_sim.execution.process_settings import ProcessWide

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""

LARGEST_KEPT = 32 << 20
"""glibc takes no larger value for M_MMAP_THRESHOLD."""


SELDOM = 100_000, 50, 100
"""Thresholds of Python's collector."""

_thresholds = ProcessWide(SELDOM, gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds))


def gc_paused() -> AbstractContextManager[None]:
    """Let Python look for garbage less often for a while."""
    return _thresholds.held()


def keep_freed_memory() -> None:
    """Let this process keep what it has freed, to use it again; where there is no glibc, nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
