"""Compare every executor with a plain torch loop that does the same: `python benchmarks/executors.py`.

Ten clients on a complete graph, five local steps of 64 per round, R-DPFL with the median. The plain loop is a
straightforward implementation: an nn.Module and optim.SGD with one torch thread per core, updates as flat
vectors, torch.median over the nine that a client receives, and Algorithm 2 in a few lines. It sends no
messages, keeps no records and simulates no time. All variants take turns, so that a busy machine slows all of
them; medians count.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from table import Row, show
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.learning.models import cnn, mlp
from rdpfl_sim.learning.training import batches
from rdpfl_sim.simulation.experiment import Experiment

NUM_CLIENTS, STEPS, BATCH, LEARNING_RATE = 10, 5, 64, 0.01
NUM_CORES = os.cpu_count() or 1

WORK: dict[str, dict[str, Any]] = {
    "cnn": {
        "data": {"name": "synthetic", "shape": [3, 32, 32], "num_train": 5000, "num_test": 100},
        "model": "cnn",
    },
    "mlp": {"data": "digits", "model": "mlp"},
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    "cnn": lambda: cnn([3, 32, 32], 10),
    "mlp": lambda: mlp([1, 8, 8], 10),
}
EXECUTORS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "cnn": [
        ("inline", {"threads": NUM_CORES}),
        ("threads", {}),
        ("stacked", {}),
    ],
    "mlp": [("inline", {}), ("threads", {}), ("stacked", {})],
}


def scenario(work: str, rounds: int, executor: str, **execution: Any) -> Scenario:
    """Return a scenario with ten clients on a complete graph."""
    return Scenario.from_dict(
        {
            "rounds": rounds,
            "clients": {"count": NUM_CLIENTS},
            "topology": "complete",
            **WORK[work],
            "partition": "iid",
            "training": {"local_steps": STEPS, "batch_size": BATCH, "learning_rate": LEARNING_RATE},
            "evaluation": {"every": 10**6, "global_test": False},
            "output": {"telemetry": False},
            "execution": {"executor": executor, **execution},
        }
    )


def plain_loop(experiment: Experiment, module: nn.Module, rounds: int) -> float:
    """Run the synchronous algorithm, one client after the other; return the seconds."""
    models = [torch.nn.utils.parameters_to_vector(module.parameters()).detach() for _ in range(NUM_CLIENTS)]
    before: list[Tensor | None] = [None] * NUM_CLIENTS
    tau = [1.0] * NUM_CLIENTS
    began = time.perf_counter()
    with deterministic_torch(NUM_CORES):
        for round_ in range(1, rounds + 1):
            u = torch.stack(
                [_direction(module, w, experiment, client, round_) for client, w in enumerate(models)]
            )
            for client in range(NUM_CLIENTS):
                others = torch.arange(NUM_CLIENTS) != client
                d_bar = u[others].median(dim=0).values
                d_hat = d_bar if before[client] is None else before[client]
                delta = d_bar - d_hat
                length = float(delta.norm())
                tau[client] = 0.9 * tau[client] + 0.1 * 1.5 * length
                d = d_hat + delta * min(1.0, tau[client] / max(length, 1e-12))
                d = d * min(1.0, 10.0 / max(float(d.norm()), 1e-12))
                before[client] = d_bar
                models[client] = models[client] - LEARNING_RATE * STEPS * (u[client] + 0.01 * d)
    return time.perf_counter() - began


def _direction(module: nn.Module, w: Tensor, experiment: Experiment, client: int, round_: int) -> Tensor:
    shard = experiment.train_shards[client]
    torch.nn.utils.vector_to_parameters(w, module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    for positions in batches(len(shard), BATCH, STEPS, seed=1000 * round_ + client):
        x, y = shard.take(positions)
        optimiser.zero_grad()
        cross_entropy(module(x), y).backward()
        optimiser.step()
    w_tilde = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    return (w - w_tilde) / (LEARNING_RATE * STEPS)


def simulated(experiment: Experiment) -> float:
    """Run the whole simulation with records in memory; return the seconds."""
    began = time.perf_counter()
    simulate(experiment)
    return time.perf_counter() - began


def measure(work: str, rounds: int, repeats: int) -> dict[str, float]:
    """Return every executor's median time relative to the plain loop, without the start of workers."""
    executors = {name: Experiment(scenario(work, rounds, name, **more)) for name, more in EXECUTORS[work]}
    module = MODULES[work]()
    ratios: dict[str, list[float]] = {name: [] for name in executors}
    kept = {name: experiment.make_executor() for name, experiment in executors.items()}
    for name, experiment in executors.items():  # keep the workers for all repeats
        executor = kept[name]
        executor.close = lambda: None  # type: ignore[method-assign]
        experiment.make_executor = lambda executor=executor: executor  # type: ignore[method-assign, misc]
    try:
        for repeat in range(repeats + 1):
            plain = plain_loop(next(iter(executors.values())), module, rounds)
            for name, experiment in executors.items():
                seconds = simulated(experiment)
                if repeat > 0:  # the first repeat starts the workers
                    ratios[name].append(seconds / plain)
    finally:
        for executor in kept.values():
            type(executor).close(executor)
    return {name: median(values) for name, values in ratios.items()}


def rows(repeats: int = 3) -> Iterator[Row]:
    """Measure every executor's wall time relative to the plain loop; only the fastest has a target."""
    for work, rounds, must in (("cnn", 2, "<= 0.65"), ("mlp", 40, "<= 0.25")):
        ratios = measure(work, rounds, repeats)
        best = min(ratios, key=ratios.__getitem__)
        for name, ratio in ratios.items():
            setting = f"10 {work} clients, 5 steps of 64, complete graph"
            title = f"{setting}: {name}, wall time relative to a plain loop"
            yield Row(title, f"{ratio:.2f}", "plain loop 1", ratio, must if name == best else "")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    show(rows(options.repeats), f"plain loop: {NUM_CORES} torch threads; torch {torch.__version__}")


if __name__ == "__main__":
    main()
