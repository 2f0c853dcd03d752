"""Messages per second through links and mailboxes, without training; with and without records.

100 clients on a 4-regular graph; every client sends to its 4 neighbours, waits for their messages, and
starts the next round. The reference is a bare SimPy loop that schedules the same number of events with a
callback. Rates are per second of processor time, which depends least on other programs: medians of
fifteen runs (of three long runs).
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from simpy import Environment
from table import Row, show

from rdpfl_sim.execution.devices import gc_paused
from rdpfl_sim.methods.base import Payload, State, Trained
from rdpfl_sim.methods.batching import Updated
from rdpfl_sim.randomness import Streams
from rdpfl_sim.simulation.recorder import Recorder
from rdpfl_sim.simulation.telemetry import Telemetry
from rdpfl_sim.world.client import Client, ClientContext
from rdpfl_sim.world.compute_time import ComputeTimes, TrainingTimes
from rdpfl_sim.world.jobs import FinishedJob, JobResult, RoundJob
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.latency import exponential
from rdpfl_sim.world.network.links import Link, bernoulli, lossless
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.network.topology import k_regular, neighbours
from rdpfl_sim.world.observer import Observer
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait
from rdpfl_sim.world.world import World

NUM_CLIENTS, DEGREE, NUM_MESSAGES, NUM_RUNS = 100, 4, 40_000, 15
MANY_CLIENTS, NUM_LONG_RUNS = 10_000, 3
W = torch.zeros(10)


STATE = State(W.unsqueeze(0))
DONE = FinishedJob(Updated(STATE), JobResult(STATE, Trained(STATE.w, (1,), (0.0,), (0.01,)), Payload(W)))


class FakeExecutor:
    """An executor that computes nothing."""

    def submit(self, job: RoundJob) -> FinishedJob:
        """Return a finished job."""
        return DONE


class Counting(Kernel):
    """A kernel that counts the events in its queue."""

    @property
    def num_events(self) -> int:
        """The number of events that were scheduled."""
        return next(self._eid)


class Run(NamedTuple):
    """The duration of a run, and its numbers of messages and events."""

    seconds: float
    num_messages: int
    num_events: int


def simulate(num_clients: int = NUM_CLIENTS, lossy: bool = False, recorded: bool = False) -> Run:
    """Simulate without training."""
    kernel, streams = Counting(), Streams(1)
    rounds = max(5, NUM_MESSAGES // (num_clients * DEGREE))
    with tempfile.TemporaryFile("wb", buffering=1 << 20) as file:  # as in a run folder
        telemetry = Telemetry(frozenset(), [None] * num_clients, lambda n: False)
        observer = Observer()
        if recorded:
            observer = Recorder(kernel, streams, file, 1.0, telemetry)
        clients: list[Client] = []
        network = network_of(kernel, num_clients, clients, observer, streams, lossy)
        begin(kernel, network, clients, observer, streams, rounds, timeout_s=0.5 if lossy else None)
        started = time.process_time()
        with gc_paused():  # as in every run
            kernel.run_until_paused()
        file.flush()
        seconds = time.process_time() - started
    return Run(seconds, network.num_sent, kernel.num_events)


def network_of(
    kernel: Kernel,
    num_clients: int,
    clients: list[Client],
    observer: Observer,
    streams: Streams,
    lossy: bool,
) -> Network:
    """Return a network of links with exponential delays that lose a tenth of the messages or none."""
    latency = partial(exponential, mean_s=0.1)
    loses = partial(bernoulli, probability=0.1) if lossy else lossless

    def link(i: int, j: int) -> Link:
        return Link(i, j, streams.key("link", i, j), latency=latency, loses=loses)

    return Network(kernel, num_clients, clients, observer, link)


def begin(
    kernel: Kernel,
    network: Network,
    clients: list[Client],
    observer: Observer,
    streams: Streams,
    rounds: int,
    timeout_s: float | None,
) -> None:
    """Start the clients; the kernel pauses when all of them have finished."""
    around = neighbours(k_regular(len(network.links), np.random.default_rng(1), k=DEGREE))
    compute_times = ComputeTimes(lambda u, client: 1.0, [1] * len(around), 0.0, streams)
    training_times = TrainingTimes(compute_times)
    context = ClientContext(
        kernel=kernel,
        network=network,
        executor=FakeExecutor(),
        observer=observer,
        clients=clients,
        observing_adversaries=(),
        training_times=training_times,
        wait=Wait(1.0, timeout_s),
        staleness=Staleness(5, 1.0),
        rounds=rounds,
        exchanges=True,
        message_form=Payload(W).form,
        messages_per_sender=8,
        prefer="round",
        on_training=lambda: None,
        on_round=lambda client: None,
    )
    clients += [Client(client, others, None, STATE, context) for client, others in enumerate(around)]
    World(
        kernel,
        network,
        clients,
        observer,
        training_times,
        changes=iter(()),
        initial_state=lambda client: STATE,
        on_departure=lambda client: None,
        on_end=kernel.pause,
    ).start()


def bare_simpy() -> Run:
    """Process the same number of bare SimPy events with a callback, 100 at a time."""
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
    return Run(time.process_time() - started, NUM_MESSAGES, NUM_MESSAGES)


WORK = {
    "bare SimPy events with a callback": bare_simpy,
    "wait for all, no loss": simulate,
    "deadline, 10 % loss": partial(simulate, lossy=True),
    "every message recorded to JSONL": partial(simulate, recorded=True),
    f"wait for all, {MANY_CLIENTS:,} clients": partial(simulate, MANY_CLIENTS),
}
MUST = {"wait for all, no loss": ">= 150000", "every message recorded to JSONL": ">= 40000"}


def rows() -> list[Row]:
    """Measure messages per second; bare SimPy, in the same run, is the reference."""
    runs: dict[str, list[Run]] = {name: [] for name in WORK}
    for number in range(NUM_RUNS):
        for name, work in WORK.items():
            if number < NUM_LONG_RUNS or "000 clients" not in name:
                runs[name].append(work())
    return [_row(name, made, next(iter(runs.values()))) for name, made in runs.items()]


def _row(name: str, made: list[Run], bare: list[Run]) -> Row:
    rates, bare_rates = ([run.num_messages / run.seconds for run in some] for some in (made, bare))
    usual, events = median(rates), median(run.num_events / run.seconds for run in made)
    ours = f"{usual:,.0f} messages/s, best {max(rates):,.0f}; {events:,.0f} events/s"
    return Row(name, ours, f"{usual / median(bare_rates):.2f} of bare SimPy", usual, MUST.get(name, ""))


if __name__ == "__main__":
    show(rows(), f"{NUM_CLIENTS} clients, degree {DEGREE}, Python {sys.version.split()[0]}")
