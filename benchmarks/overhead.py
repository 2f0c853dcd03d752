"""What the simulator costs on top of training: ten CNN clients against a plain torch loop.

Both do the same training: 122,570 parameters, images of 3x32x32, 5 local steps with batches of 64 a round.
The simulator also exchanges 90 messages a round on a complete graph, aggregates them by the median, predicts,
clips and records; the plain loop (nn.Module and optim.SGD) does nothing of this.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rdpfl_sim import Scenario
from rdpfl_sim.blueprint import Blueprint
from rdpfl_sim.learning.models import cnn
from rdpfl_sim.learning.training import batches
from rdpfl_sim.simulation import simulate

STEPS, BATCH, LEARNING_RATE = 5, 64, 0.01


def scenario(rounds: int, num_clients: int) -> Scenario:
    """Ten CNN clients that talk to everybody."""
    return Scenario.from_dict(
        {
            "rounds": rounds,
            "clients": {"count": num_clients},
            "topology": "complete",
            "data": {
                "name": "synthetic",
                "shape": [3, 32, 32],
                "num_train": 500 * num_clients,
                "num_test": 100,
            },
            "partition": "iid",
            "model": "cnn",
            "training": {"local_steps": STEPS, "batch_size": BATCH, "learning_rate": LEARNING_RATE},
            "evaluation": {"every": 10**6, "global_test": False},
        }
    )


def plain_loop(blueprint: Blueprint, rounds: int, memory_format: torch.memory_format) -> float:
    """Seconds for the same local training, client after client, with a module and an optimiser."""
    module: nn.Module = cnn([3, 32, 32], 10).to(memory_format=memory_format)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    began = time.perf_counter()
    for round_ in range(1, rounds + 1):
        for client, shard in enumerate(blueprint.train_shards):
            module.load_state_dict(start)
            optimiser = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
            for positions in batches(len(shard), BATCH, STEPS, seed=1000 * round_ + client):
                x, y = shard.take(positions)
                optimiser.zero_grad()
                cross_entropy(module(x.contiguous(memory_format=memory_format)), y).backward()
                optimiser.step()
    return time.perf_counter() - began


def simulated(blueprint: Blueprint) -> float:
    """Seconds for the whole simulation, records in memory."""
    began = time.perf_counter()
    simulate(blueprint)
    return time.perf_counter() - began


def main() -> None:
    """Alternate the three and print medians and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    blueprint = Blueprint(scenario(options.rounds, options.clients))
    runs = [
        (
            plain_loop(blueprint, options.rounds, torch.contiguous_format),
            plain_loop(blueprint, options.rounds, torch.channels_last),
            simulated(blueprint),
        )
        for _ in range(options.repeats)
    ]
    names = ("plain loop", "plain loop, channels_last", "rdpfl-sim, inline executor")
    work = f"{options.clients} CNN clients, {options.rounds} rounds of {STEPS} x {BATCH}"
    print(f"{work}, {torch.get_num_threads()} threads")
    print(f"{'':30}{'seconds':>10}{'of plain':>10}{'of channels_last':>18}")
    for index, name in enumerate(names):
        seconds = median(run[index] for run in runs)
        of_plain, of_last = (median(run[index] / run[base] for run in runs) for base in (0, 1))
        print(f"{name:30}{seconds:10.2f}{of_plain:10.3f}{of_last:18.3f}")


if __name__ == "__main__":
    main()
