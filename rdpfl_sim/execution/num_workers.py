"""The number of workers that train at the same time."""

from __future__ import annotations

import os
from typing import Annotated, TypeAlias

from annotated_types import Le

from rdpfl_sim.components.options import Count, Doc

MAX_WORKERS = 1024
"""Upper limit of the option. More workers than cores use memory without a speed-up."""

Workers: TypeAlias = Annotated[
    Annotated[Count, Le(MAX_WORKERS)] | None, Doc("clients trained at the same time; default: one per core")
]


def num_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
