"""What checkpoints cost: ten CNN clients (see overhead.py) that are written down every 10 rounds.

The time for checkpoints is measured within the run, which other programs disturb less than a comparison of
two runs: it is what the run would save without them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from overhead import scenario

from rdpfl_sim.blueprint import Blueprint
from rdpfl_sim.records.checkpoints import Checkpoints
from rdpfl_sim.simulation import Simulation, simulate


def main() -> None:
    """Run once, and print the share of the wall time that went into checkpoints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--every", type=int, default=10, metavar="ROUNDS")
    options = parser.parse_args()
    base = scenario(options.rounds, options.clients)
    checkpoint = base.checkpoint.model_copy(update={"every_rounds": options.every, "every_minutes": 1e9})
    blueprint = Blueprint(base.model_copy(update={"checkpoint": checkpoint}))
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
        simulate(blueprint, folder)
        wall_s = time.perf_counter() - began
    print(
        f"{options.clients} CNN clients, {options.rounds} rounds, a checkpoint every {options.every} rounds"
    )
    print(f"wall time {wall_s:.1f} s, {torch.get_num_threads()} threads")
    print(f"{len(spent_s)} checkpoints of {max(sizes) / 1e6:.1f} MB: {sum(spent_s):.3f} s")
    print(f"share of the wall time {sum(spent_s) / wall_s:.2%} (to reach: 2 %)")


if __name__ == "__main__":
    main()
