"""The registry of executors, and the executor `auto` that chooses one."""

from __future__ import annotations

from rdpfl_sim.execution.devices import SMALL_MODEL
from rdpfl_sim.execution.executor import EXECUTORS, Executor, executor
from rdpfl_sim.execution.inline import Inline
from rdpfl_sim.execution.num_workers import Workers, num_cores
from rdpfl_sim.execution.ray_actors import RayActors
from rdpfl_sim.execution.stacked import Stacked
from rdpfl_sim.execution.threads import Threads
from rdpfl_sim.execution.training_data import TrainingData
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.stacked_models import NotStackableError
from rdpfl_sim.methods.base import Method


@executor
def auto(
    model: FlatModel, training_data: TrainingData, method: Method, *, workers: Workers = None
) -> Executor:
    """Choose `inline` on a GPU, `stacked` for small models without convolutions, and otherwise `threads`.

    With one worker, `inline` replaces `threads`. On a CPU, the choice of `stacked` depends on the scenario
    but not on the machine, because stacking changes rounding.
    """
    if model.vector.is_cuda:
        return Inline(model, training_data, method)
    if is_small(model, training_data):
        try:
            return Stacked(model, training_data, method)
        except NotStackableError:
            pass
    if (workers or num_cores()) == 1:
        return Inline(model, training_data, method)
    return Threads(model, training_data, method, workers=workers)


def is_small(model: FlatModel, training_data: TrainingData) -> bool:
    """Return whether stacking clients is faster than training them separately."""
    convolutions = any(len(shape) > 2 for shape in model.shapes.values())
    return len(training_data.shards) > 1 and model.num_parameters < SMALL_MODEL and not convolutions


@executor
def stacked(model: FlatModel, training_data: TrainingData, method: Method) -> Executor:
    """Compute all pending jobs in batches of clients; for many clients with small models."""
    try:
        return Stacked(model, training_data, method)
    except NotStackableError as error:
        inline = Inline(model, training_data, method)
        inline.warning = f"clients are trained one at a time: the model has {error} and cannot be stacked"
        return inline


REMOVED = {"processes": "the executor 'processes' was removed; use 'threads', 'stacked' or 'ray'"}
"""Error messages for removed executors."""

__all__ = ["EXECUTORS", "REMOVED", "RayActors", "auto", "is_small", "stacked"]
