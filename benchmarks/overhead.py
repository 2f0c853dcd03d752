"""The overhead of the simulator over training, and of telemetry over runs without it.

Ten CNN clients are compared with a plain torch loop. Both do the same training: 122,570 parameters, images of
3x32x32, 5 local steps with batches of 64 per round. The simulator also exchanges 90 messages per round on a
complete graph, aggregates them by the median, predicts, clips and records; the plain loop (nn.Module and
optim.SGD) only trains.

Telemetry is measured in processor time with two runs of many small steps, 4 neighbours each: 12 clients that
train an MLP on digits (4,810 parameters), and 1,000 softmax clients (see small_clients.py).
"""

from __future__ import annotations

import time
from statistics import median

import torch
from small_clients import scenario as small_clients
from table import Row, show
from torch import nn
from torch.nn.functional import cross_entropy

from rdpfl_sim import Scenario
from rdpfl_sim.learning.models import cnn
from rdpfl_sim.learning.training import batches
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.simulation import simulate

STEPS, BATCH, LEARNING_RATE = 5, 64, 0.01


def scenario(rounds: int, num_clients: int) -> Scenario:
    """Return a scenario with CNN clients on a complete graph."""
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
            "execution": {"executor": "inline", "threads": torch.get_num_threads()},
        }
    )


def plain_loop(experiment: Experiment, rounds: int, memory_format: torch.memory_format) -> float:
    """Run the same local training with a module and an optimiser; return the seconds."""
    module: nn.Module = cnn([3, 32, 32], 10).to(memory_format=memory_format)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    began = time.perf_counter()
    for round_ in range(1, rounds + 1):
        for client, shard in enumerate(experiment.train_shards):
            module.load_state_dict(start)
            optimiser = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
            for positions in batches(len(shard), BATCH, STEPS, seed=1000 * round_ + client):
                x, y = shard.take(positions)
                optimiser.zero_grad()
                cross_entropy(module(x.contiguous(memory_format=memory_format)), y).backward()
                optimiser.step()
    return time.perf_counter() - began


def simulated(experiment: Experiment) -> float:
    """Run the whole simulation with records in memory; return the seconds."""
    began = time.perf_counter()
    simulate(experiment)
    return time.perf_counter() - began


def digits() -> Scenario:
    """Return a scenario with a few small clients."""
    return Scenario.from_dict(
        {
            "rounds": 30,
            "clients": {"count": 12},
            "topology": {"name": "k_regular", "k": 4},
            "data": "digits",
            "model": "mlp",
            "evaluation": {"every": 10**6, "global_test": False},
            "execution": {"threads": 1},
        }
    )


def telemetry_row(work: str, base: Scenario, repeats: int = 7) -> Row:
    """Alternate runs with and without telemetry; medians count."""
    raw = base.to_dict()
    experiments = [
        Experiment(Scenario.from_dict({**raw, "output": {"telemetry": telemetry}}))
        for telemetry in (True, False)
    ]
    times_s = []
    for _ in range(1 + repeats):
        pair = []
        for experiment in experiments:
            began = time.process_time()
            simulate(experiment)
            pair.append(time.process_time() - began)
        times_s.append(pair)
    num_steps = base.clients.count * base.rounds
    with_it, without = (median(column) / num_steps * 1e6 for column in zip(*times_s[1:], strict=True))
    ratio = median(one / other for one, other in times_s[1:])
    return Row(
        f"{work}: time per client and round with telemetry, relative to a run without",
        f"{with_it:.0f} us",
        f"{without:.0f} us",
        ratio,
        "<= 1.15",
    )


def rows(rounds: int = 2, num_clients: int = 10, repeats: int = 3) -> list[Row]:
    """Alternate the three variants; medians count."""
    experiment = Experiment(scenario(rounds, num_clients))
    runs = [
        (
            plain_loop(experiment, rounds, torch.contiguous_format),
            plain_loop(experiment, rounds, torch.channels_last),
            simulated(experiment),
        )
        for _ in range(repeats)
    ]
    plain, last, ours = (median(column) for column in zip(*runs, strict=True))
    to_plain, to_last = (median(run[2] / run[base] for run in runs) for base in (0, 1))
    work = f"{num_clients} CNN clients, {STEPS} steps of {BATCH}, complete graph, inline"
    return [
        Row(
            f"{work}: wall time relative to a loop that only trains, both with channels_last",
            f"{ours:.2f} s",
            f"{last:.2f} s",
            to_last,
            "<= 1.05",
        ),
        Row(
            f"{work}: relative to the loop without channels_last", f"{ours:.2f} s", f"{plain:.2f} s", to_plain
        ),
        telemetry_row("12 digits clients", digits()),
        telemetry_row("1,000 softmax clients", small_clients(1000, 5)),
    ]


if __name__ == "__main__":
    show(rows(), f"{torch.get_num_threads()} threads")
