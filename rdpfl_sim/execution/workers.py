"""How many workers there are, and what they can do."""

from __future__ import annotations

import os
from typing import Annotated, TypeAlias

from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.options import Count, Doc

Workers: TypeAlias = Annotated[Count | None, Doc("how many train at a time; by default one for every core")]


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def need_processors(model: FlatModel) -> None:
    """An error if the model is on a GPU."""
    if model.vector.is_cuda:
        raise OptionError("", "trains on processors only; set execution.device = 'cpu'")
