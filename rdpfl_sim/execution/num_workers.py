"""How many workers there are, and what they can do."""

from __future__ import annotations

import os
from typing import Annotated, TypeAlias

from annotated_types import Le

from rdpfl_sim.components.options import Count, Doc

MAX_WORKERS = 1024
"""More threads or processes than a machine has cores only take memory."""

Workers: TypeAlias = Annotated[
    Annotated[Count, Le(MAX_WORKERS)] | None, Doc("how many train at a time; by default one for every core")
]


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
