"""Messages a second through links and mailboxes, without training and without records.

100 clients on a 4-regular graph; every client sends to its 4 neighbours, waits for all, and goes on. A bare
SimPy loop that only schedules as many events with a callback is the yardstick. Rates are per second of CPU
time, which other programs disturb least.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
import torch
from simpy import Environment

from rdpfl_sim.maths.types import Payload, Work
from rdpfl_sim.methods.base import Home, Method, State
from rdpfl_sim.randomness import Streams
from rdpfl_sim.registry import specialised
from rdpfl_sim.world.client import Client, Life, Surroundings
from rdpfl_sim.world.distributions import exponential
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.links import Link, bernoulli, lossless
from rdpfl_sim.world.mailbox import Mailbox
from rdpfl_sim.world.network import Network
from rdpfl_sim.world.observer import Observer
from rdpfl_sim.world.topology import k_regular, neighbours
from rdpfl_sim.world.waiting import Staleness, Wait

NUM_CLIENTS, DEGREE, ROUNDS = 100, 4, 250
NUM_MESSAGES = NUM_CLIENTS * DEGREE * ROUNDS
W = torch.zeros(10)


@dataclass
class Trained:
    """A job that is done before it begins."""

    w_tilde: torch.Tensor = W
    num_steps: int = 1
    loss: float = 0.0

    def result(self) -> Trained:
        """Itself."""
        return self


DONE = Trained()


class FakeTrainer:
    """Trains nothing."""

    def submit(self, client: int, round_: int, work: Work, poisoned: bool) -> Trained:
        """A finished job."""
        return DONE


class FakeMethod(Method):
    """Sends a vector and ignores what arrives."""

    def outgoing(self, state: State, own: Trained, home: Home) -> tuple[State, Payload]:
        """A fresh payload, which the first mailbox has to check."""
        return state, Payload(W)

    def update(self, state, own, received, home):
        """Nothing changes."""
        return state, {}

    def inspect(self, state, own, received, home):
        """Nobody asks."""
        raise AssertionError


def simulate(lossy: bool) -> float:
    """CPU seconds for one run."""
    kernel, streams, observer = Kernel(), Streams(1), Observer()
    around = neighbours(k_regular(NUM_CLIENTS, np.random.default_rng(1), k=DEGREE))
    latency = specialised(partial(exponential, mean_s=0.1))
    loses = specialised(partial(bernoulli, probability=0.1)) if lossy else lossless
    network = Network(
        kernel,
        NUM_CLIENTS,
        observer,
        lambda i, j: Link(i, j, streams.key("link", i, j), latency=latency, loses=loses),
    )
    unfinished = set(range(NUM_CLIENTS))

    def on_finish(client: int) -> None:
        unfinished.discard(client)
        if not unfinished:
            kernel.pause()

    surroundings = Surroundings(
        kernel=kernel,
        network=network,
        trainer=FakeTrainer(),
        method=FakeMethod(),
        onlookers=(),
        observer=observer,
        degree=lambda client: DEGREE,
        seed=streams.key,
        wait=Wait(1.0, 0.5 if lossy else None),
        staleness=Staleness(5, 1.0),
        rounds=ROUNDS,
        duration_s=lambda client, round_: 1.0,
        on_training=lambda: None,
        on_round=lambda client: None,
        on_finish=on_finish,
    )
    for client, others in enumerate(around):
        mailbox = Mailbox(
            others, observer, form=Payload(W).form, last_round=ROUNDS, capacity=8, prefer="round"
        )
        living = Client(client, others, None, Life(State(W), mailbox), surroundings)
        network.receivers.append(living.receive)
        kernel.process(living.run())
    started = time.process_time()
    kernel.run_on()
    seconds = time.process_time() - started
    assert network.num_sent == NUM_MESSAGES
    return seconds


def yardstick() -> float:
    """CPU seconds for as many bare SimPy events with a callback, 100 under way at a time."""
    env, left = Environment(), NUM_MESSAGES

    def on_event(event) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            env.timeout(1.0).callbacks.append(on_event)

    for _ in range(NUM_CLIENTS):
        env.timeout(1.0).callbacks.append(on_event)
    started = time.process_time()
    env.run()
    return time.process_time() - started


def main() -> None:
    """Print one table; ratios come from the same run."""
    runs = [(yardstick(), simulate(lossy=False), simulate(lossy=True)) for _ in range(9)]
    print(
        f"{NUM_MESSAGES:,} messages, {NUM_CLIENTS} clients, degree {DEGREE}, Python {sys.version.split()[0]}"
    )
    print(f"{'messages/s':34}{'median of 9':>12}{'best of 9':>12}{'of bare SimPy':>15}")
    names = ("bare SimPy events with a callback", "wait for all, no loss", "deadline, 10 % loss")
    columns = list(zip(*runs, strict=True))
    for name, column in zip(names, columns, strict=True):
        usual, best = NUM_MESSAGES / median(column), NUM_MESSAGES / min(column)
        print(f"{name:34}{usual:12,.0f}{best:12,.0f}{min(columns[0]) / min(column):15.2f}")


if __name__ == "__main__":
    main()
