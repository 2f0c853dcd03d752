"""The memory of this machine, and a check of options that need too much of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rdpfl_sim.errors import OptionError

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int:
    """Return the total memory of this machine or container."""
    limits = [1 << 40]
    with suppress(OSError, ValueError, AttributeError):  # Windows has no sysconf
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):
        limits.append(int(CONTAINER_LIMIT.read_text()))
    return min(limits)


def check_memory(option: str, num_bytes: int) -> None:
    """Raise an `OptionError` if an option needs more memory than this machine has."""
    if num_bytes > memory_bytes():
        message = f"needs {_gigabytes(num_bytes)} of memory; this machine has {_gigabytes(memory_bytes())}"
        raise OptionError(option, message)


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes // 10**9:,} GB" if num_bytes < 10**18 else "more than 1,000,000,000 GB"
