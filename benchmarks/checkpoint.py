"""The cost of checkpoints: ten CNN clients (see overhead.py) with a checkpoint every 10 rounds.

The time is measured inside the run, because a comparison of two runs is more sensitive to other programs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from overhead import scenario
from table import Row, show

from rdpfl_sim.simulation.checkpoint_file import Checkpoints
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.simulation import Simulation, simulate


def rows(rounds: int = 20, num_clients: int = 10, every: int = 10) -> list[Row]:
    """Run once; measure the share of the wall time that checkpoints take."""
    base = scenario(rounds, num_clients)
    checkpoint = base.checkpoint.model_copy(update={"every_rounds": every, "every_minutes": 1e9})
    experiment = Experiment(base.model_copy(update={"checkpoint": checkpoint}))
    spent_s, sizes, write, save = list[float](), list[int](), Simulation._checkpoint, Checkpoints.save

    def timed(simulation: Simulation) -> None:
        began = time.perf_counter()
        write(simulation)
        spent_s.append(time.perf_counter() - began)

    def sized(checkpoints: Checkpoints, *content) -> Path:
        path = save(checkpoints, *content)
        sizes.append(path.stat().st_size)
        return path

    Simulation._checkpoint, Checkpoints.save = timed, sized  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        simulate(experiment, folder)
        wall_s = time.perf_counter() - began
    size = f"{len(spent_s)} checkpoints of {max(sizes) / 1e6:.0f} MB"
    task = f"{num_clients} CNN clients, {size}, share of the wall time"
    share = sum(spent_s) / wall_s
    return [Row(task, f"{sum(spent_s):.3f} s", f"{wall_s:.1f} s", share, "<= 0.02")]


if __name__ == "__main__":
    show(rows())
