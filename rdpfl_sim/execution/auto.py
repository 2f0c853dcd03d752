"""The executor `auto`, which chooses one of the others, and `stacked` with its fallback."""

from __future__ import annotations

from rdpfl_sim.execution.devices import SMALL_MODEL, Workers, num_cores
from rdpfl_sim.execution.executor import EXECUTORS, Executor, Inline, RoundComputation, TrainingData, executor
from rdpfl_sim.execution.ray import RayActors
from rdpfl_sim.execution.stacked import Stacked
from rdpfl_sim.execution.threads import Threads
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.stacked import NotStackableError


@executor
def auto(computation: RoundComputation, *, workers: Workers = None) -> Executor:
    """Choose `inline` on a GPU, `stacked` for small models without convolutions, and otherwise `threads`.

    Models with dropout and training in bfloat16 cannot be stacked. With one worker, `inline` replaces
    `threads`. On a CPU, the choice of `stacked` depends on the scenario but not on the machine, because
    stacking changes rounding.
    """
    if computation.model.vector.is_cuda:
        return Inline(computation)
    if is_small(computation.model, computation.training_data):
        try:
            return Stacked(computation)
        except NotStackableError:
            pass
    if (workers or num_cores()) == 1:
        return Inline(computation)
    return Threads(computation, workers=workers)


def is_small(model: FlatModel, training_data: TrainingData) -> bool:
    """Return whether stacking clients is faster than training them separately."""
    convolutions = any(len(shape) > 2 for shape in model.shapes.values())
    return len(training_data.shards) > 1 and model.num_parameters < SMALL_MODEL and not convolutions


@executor(is_batched=True)
def stacked(computation: RoundComputation) -> Executor:
    """Compute all pending jobs in batches of clients; for many clients with small models."""
    try:
        return Stacked(computation)
    except NotStackableError as error:
        inline = Inline(computation)
        inline.warning = f"clients are trained one at a time, because {error}"
        return inline


REMOVED = {"processes": "the executor 'processes' was removed; use 'threads', 'stacked' or 'ray'"}
"""Error messages for removed executors."""

__all__ = ["EXECUTORS", "REMOVED", "RayActors", "auto", "is_small", "stacked"]
