"""Client steps per second for a thousand softmax clients, compared with a plain loop and gossipy.

    python benchmarks/small_clients.py [--executor NAME] [--clients N]

Images of 8x8 (64 features, 10 classes, 650 parameters), 32 per client, on a random 4-regular graph; every
client takes one SGD step of 32 per round, for 20 rounds. Only the first and the last models are
evaluated, and there is no telemetry. All variants use one torch thread and are measured in processor
time, which depends least on other programs.

* Ours: R-DPFL with the median; each client sends its update to all 4 neighbours and waits for theirs,
  over links with a latency; 4,000 messages per round. Records in memory. Also D-PSGD, which averages
  models.
* The plain loop: only the training, one client after the other, with nn.Linear and optim.SGD; no
  exchange.
* gossipy (PyPI gossipy-dfl, Apache 2.0), its own protocol: in a round of 100 time steps each node sends
  its model to one random neighbour (PUSH), which averages it with its own model and takes one step of 32
  (`TorchModelHandler` with MERGE_UPDATE and local_epochs=0, `LogisticRegression`, CrossEntropyLoss, SGD,
  no delay, no evaluation): 1,000 messages and 1,000 client steps per round. It sends a quarter of our
  messages.

gossipy is not a dependency. To compare with it:
    pip install --no-deps --target FOLDER gossipy-dfl dill tqdm
    PYTHONPATH=FOLDER python benchmarks/small_clients.py
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from importlib.util import find_spec
from statistics import median
from typing import Any

import networkx as nx
import torch
from table import Row, show
from torch import nn
from torch.nn.functional import cross_entropy

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.simulation.experiment import Experiment

BATCH, LEARNING_RATE, FEATURES, CLASSES = 32, 0.1, 64, 10
NO_GOSSIPY = "gossipy cannot be imported: pip install --no-deps --target FOLDER gossipy-dfl dill tqdm"


def scenario(num_clients: int, rounds: int, method: str = "rdpfl", executor: str = "auto") -> Scenario:
    """Return a scenario with many small clients that have four neighbours each."""
    return Scenario.from_dict(
        {
            "rounds": rounds,
            "clients": {"count": num_clients},
            "topology": {"name": "k_regular", "k": 4},
            "data": {"name": "synthetic", "num_train": BATCH * num_clients, "num_test": num_clients},
            "partition": "iid",
            "model": "softmax",
            "method": method,
            "training": {"local_steps": 1, "batch_size": BATCH, "learning_rate": LEARNING_RATE},
            "evaluation": {"every": 10**6, "global_test": False},
            "output": {"telemetry": False},
            "execution": {"executor": executor},
        }
    )


def ours(experiment: Experiment) -> float:
    """Return the client steps per second of the whole simulation, without its set-up."""
    began = time.process_time()
    simulate(experiment)
    steps = experiment.scenario.clients.count * experiment.scenario.rounds
    return steps / (time.process_time() - began)


def plain_loop(experiment: Experiment, rounds: int) -> float:
    """Return the client steps per second of the same training in a straightforward implementation."""
    modules = [nn.Linear(FEATURES, CLASSES) for _ in experiment.train_shards]
    optimisers = [torch.optim.SGD(module.parameters(), lr=LEARNING_RATE) for module in modules]
    began = time.process_time()
    for _ in range(rounds):
        for module, optimiser, shard in zip(modules, optimisers, experiment.train_shards, strict=True):
            x, y = shard.take(torch.randperm(len(shard))[:BATCH])
            optimiser.zero_grad()
            cross_entropy(module(x.flatten(1)), y).backward()
            optimiser.step()
    return rounds * len(modules) / (time.process_time() - began)


def gossipy(experiment: Experiment, rounds: int) -> float:
    """Return the client steps per second of gossipy's simulator, on the same graph and data."""
    import gossipy
    from gossipy.core import AntiEntropyProtocol, ConstantDelay, CreateModelMode, StaticP2PNetwork
    from gossipy.model.handler import TorchModelHandler
    from gossipy.model.nn import LogisticRegression
    from gossipy.node import GossipNode
    from gossipy.simul import GossipSimulator

    class NoTests:
        """The part of a data set that the simulator needs."""

        def has_test(self) -> bool:
            return False

    gossipy.set_seed(1)
    gossipy.LOG.setLevel("ERROR")
    network = StaticP2PNetwork(
        len(experiment.deployment.graph), nx.to_scipy_sparse_array(experiment.deployment.graph, format="csr")
    )
    network._topology = dict(
        enumerate(map(list, experiment.deployment.neighbours))
    )  # it supports only csr_matrix
    handler = TorchModelHandler(
        net=LogisticRegression(FEATURES, CLASSES),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": LEARNING_RATE},
        criterion=nn.CrossEntropyLoss(),
        local_epochs=0,
        batch_size=BATCH,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    num_steps = 0

    def counted(self: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        nonlocal num_steps
        num_steps += 1
        step(self, x, y)

    step, TorchModelHandler._local_step = TorchModelHandler._local_step, counted
    nodes = {}
    for client, shard in enumerate(experiment.train_shards):
        x, y = shard.take(torch.arange(len(shard)))
        nodes[client] = GossipNode(
            client, ((x.flatten(1), y), None), round_len=100, model_handler=handler.copy(), p2p_net=network
        )
    simulator = GossipSimulator(nodes, NoTests(), 100, AntiEntropyProtocol.PUSH, delay=ConstantDelay(0))
    simulator.init_nodes(seed=1)
    num_steps = 0
    began = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        simulator.start(n_rounds=rounds)
    seconds = time.process_time() - began
    TorchModelHandler._local_step = step
    return num_steps / seconds


def rows(num_clients: int = 1000, executor: str = "auto", repeats: int = 3) -> list[Row]:
    """Compare with the plain loop and gossipy; all variants take turns, medians count."""
    torch.set_num_threads(1)
    rdpfl = Experiment(scenario(num_clients, 20, "rdpfl", executor))
    dpsgd = Experiment(scenario(num_clients, 20, "dpsgd", executor))
    has_gossipy = find_spec("gossipy") is not None
    rates: list[tuple[float, ...]] = []
    for _ in range(repeats):
        rival = gossipy(rdpfl, 2) if has_gossipy else float("nan")
        rates.append((ours(rdpfl), ours(dpsgd), plain_loop(rdpfl, 3), rival))
    ours_rate, dpsgd_rate, plain, rival = (median(column) for column in zip(*rates, strict=True))
    work = f"{num_clients:,} softmax clients, 4-regular, 1 step of 32 per round"

    def row(method: str, rate: float, name: str, other: float, must: str = "") -> Row:
        there = other == other
        reference = f"{name} {other:,.0f}" if there else NO_GOSSIPY
        ratio = rate / other if there else None
        return Row(f"{work}, {method}, vs {name}", f"{rate:,.0f} steps/s", reference, ratio, must)

    return [
        row("R-DPFL", ours_rate, "gossipy", rival, ">= 20"),
        row("D-PSGD", dpsgd_rate, "gossipy", rival),
        row("R-DPFL", ours_rate, "plain loop, training only", plain),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executor", default="auto", choices=["auto", "inline", "stacked"])
    parser.add_argument("--clients", type=int, default=1000)
    options = parser.parse_args()
    show(rows(options.clients, options.executor), f"executor {options.executor}")
