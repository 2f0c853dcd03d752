"""Code shared by several tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from rdpfl_sim import Scenario
from rdpfl_sim.aggregators import mean
from rdpfl_sim.attacks import none
from rdpfl_sim.execution.executor import Executor, Inline, RoundComputation, TrainingData, TrainingJob
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.methods.base import (
    Batch,
    ClientView,
    Diagnostics,
    Form,
    Inbox,
    Method,
    Payload,
    RunInfo,
    State,
    Trained,
    TrainingTask,
)
from rdpfl_sim.methods.batching import Received, Updated, make_inbox
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.randomness import Streams
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.world.adversary.adversary import Adversary, Plan
from rdpfl_sim.world.client import Client, ClientContext
from rdpfl_sim.world.compute_time import ComputeTimes, TrainingTimes
from rdpfl_sim.world.faults.fault import merged
from rdpfl_sim.world.jobs import FinishedJob, RoundJob
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.links import Link, Loss, lossless
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.observer import Observer, UsedMessage
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait
from rdpfl_sim.world.world import World


def small_scenario(**changes: Any) -> Scenario:
    """Return a scenario of a quick run with real training; `changes` replace whole sections."""
    return Scenario.from_dict(
        {
            "rounds": 4,
            "clients": {"count": 6},
            "data": {"name": "synthetic", "shape": [8], "num_classes": 3, "num_train": 300, "num_test": 60},
            "partition": {"name": "dirichlet", "min_samples": 5},
            "model": "softmax",
            "evaluation": {"every": 2},
            **changes,
        }
    )


@dataclass(frozen=True)
class NumberedState(State):
    """A state with the ids of its clients."""

    clients: Tensor


class Predicting(Direct):
    """Client i predicts (100 + i, 100 + i)."""

    def init(self, w: Tensor, clients: Sequence[ClientView]) -> NumberedState:
        return NumberedState(w, torch.tensor([client.id for client in clients]))

    def update(
        self, state: State, trained: Trained, inbox: Inbox, clients: Sequence[ClientView]
    ) -> tuple[NumberedState, Diagnostics]:
        assert isinstance(state, NumberedState)
        new, diagnostics = super().update(state, trained, inbox, clients)
        return NumberedState(new.w, state.clients), diagnostics

    def predicted_direction(self, state: State) -> Tensor:
        assert isinstance(state, NumberedState)
        return (100.0 + state.clients).unsqueeze(1).expand(-1, 2)


@dataclass(frozen=True)
class Services:
    """Seeds by name, and one batch for all clients."""

    own_batch: Any = None

    def seed(self, purpose: str, client: int, round_: int) -> int:
        return Streams(0).key(purpose, client, round_)

    def batch(self, client: int, round_: int) -> Any:
        assert self.own_batch is not None, "there is no data"
        return self.own_batch


CLIENT = ClientView(0, 1, 2, Services())


def trained(
    w: Tensor, num_steps: int = 2, second_w: Tensor | None = None, learning_rate: float = 0.5
) -> Trained:
    """Return the result of one client's training that was not run, as a row."""
    second = None if second_w is None else second_w.unsqueeze(0)
    return Trained(w.unsqueeze(0), (num_steps,), (0.5,), (learning_rate,), second)


def inbox(*messages: Received | Tensor, like: Tensor | None = None) -> Inbox:
    """Return the inbox of one client; a tensor is a fresh message of a sender with two neighbours."""
    received = [
        Received(Payload(message), 1.0, 2) if isinstance(message, Tensor) else message for message in messages
    ]
    return make_inbox([received], torch.zeros(1, 2) if like is None else like)


TRIANGLE = [(1, 2), (0, 2), (0, 1)]
RING = [(1, 3), (0, 2), (1, 3), (0, 2)]
FOR_ALL = Wait(1.0, None)
DROP = Staleness(0, 1.0)
HONEST = Plan(none)


Direction = Callable[[int, int, bool], float]
"""A client's direction, from its id, its round and whether its data is poisoned."""


class FakeTrainingData:
    """By default client i's direction is i + 1 (learning rate 1), or -100 if its data is poisoned."""

    streams = Streams(0)

    def __init__(self, direction: Direction | None = None) -> None:
        self.direction = direction or (lambda client, round_, poisoned: -100 if poisoned else client + 1)

    def job(
        self, client: int, round_: int, task: TrainingTask, poisoned: bool = False, velocity: None = None
    ) -> TrainingJob:
        return TrainingJob(client, task, seed=round_, learning_rate=1.0, poisoned=poisoned)

    def train(self, model: None, job: TrainingJob) -> Trained:
        w = job.task.w - self.direction(job.client, job.seed, job.poisoned)
        return Trained(w, num_steps=(1,), losses=(0.0,), learning_rates=(1.0,))

    def batch(self, model: None, client: int, round_: int) -> Batch:
        raise AssertionError("there is no data")


def fake_executor(method: Method, direction: Direction | None = None) -> Executor:
    """Return an executor whose training is arithmetic on two numbers."""
    data = cast(Any, FakeTrainingData(direction))
    return Executor(RoundComputation(cast(Any, None), data, method, with_message_stats=True))


def round_job(client: int, round_: int, state: State, poisoned: bool = False) -> RoundJob:
    """Return the job of a client that starts in a round, with two neighbours."""
    return RoundJob(client, round_, FinishedJob(Updated(state)), None, degree=2, poisoned=poisoned)


class CheapTrainingData(TrainingData):
    """Pulls every client towards a separate point, with gradients of at most 1 in every entry.

    A second model is pulled to the same point. Masks are applied, momentum is ignored. Batches and tests are
    real.
    """

    def train(self, model: FlatModel, job: TrainingJob) -> Trained:
        task, num_steps = job.task, self.settings.num_steps(len(self.shards[job.client]))
        goal = torch.arange(task.w.shape[1]).mul(job.client + 1).add(job.seed % 1000).sin()

        def trained(w: Tensor) -> Tensor:
            gradient = (w - goal).clamp(-1, 1) * (-1 if job.poisoned else 1)
            if task.mask is not None:
                gradient = gradient * task.mask
            return w - job.learning_rate * num_steps * gradient

        second_w = None if task.second_w is None else trained(task.second_w)
        return Trained(trained(task.w), (num_steps,), (0.5,), (job.learning_rate,), second_w)


def cheap(scenario: Scenario, *, any_executor: bool = False) -> Experiment:
    """Return the experiment of a scenario whose training costs nothing.

    It is computed inline, or with `any_executor` by the scenario's executor; `stacked` trains for real.
    """
    experiment = Experiment(scenario)
    experiment.training_data = CheapTrainingData(**vars(experiment.training_data))
    experiment.computation = replace(experiment.computation, training_data=experiment.training_data)
    if not any_executor:
        experiment.make_executor = lambda: Inline(experiment.computation)  # type: ignore[method-assign]
    return experiment


def odd_payloads(form: Form) -> dict[str, Payload]:
    """Return malformed messages for a recipient that expects this form, by kind."""
    (size,), masked = form[0], len(form) > 2
    ones, largest = torch.ones(size), torch.finfo(torch.float32).max
    half = torch.arange(size) % 2 == 0
    mask = half if masked else None
    values = {
        "huge": ones * largest,
        "huge and alternating": torch.where(half, largest, -largest),
        "huge where nothing is sent": torch.where(half, 0.0, largest),
        "nan": ones * torch.nan,
        "nan where nothing is sent": torch.where(half, 0.0, torch.nan),
        "inf": ones * torch.inf,
        "tiny": ones * 1e-45,
        "empty": ones[:0],
        "too long": torch.ones(size + 1),
        "a matrix": ones.unsqueeze(0),
        "float64": ones.double(),
    }
    masks = {
        "no mask": None,
        "empty mask": half & ~half,
        "full mask": half | ~half,
        "short mask": half[:-1],
        "long mask": torch.cat([half, half]),
        "mask of floats": half.float(),
    }
    return {kind: Payload(vector, mask) for kind, vector in values.items()} | {
        kind: Payload(ones * largest, other) for kind, other in masks.items()
    }


class Log(Observer):
    """Stores all observed events with their times."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.sent: list[tuple[float, int, int, int]] = []
        """time, sender, recipient, stamp"""
        self.payloads: list[Tensor] = []
        """what was sent, in the same order"""
        self.lost: list[tuple[float, int, int, str]] = []
        """time, sender, recipient, reason"""
        self.delivered: list[tuple[float, int, int, int]] = []
        """time, sender, recipient, stamp"""
        self.rounds: list[tuple[float, int, int, int]] = []
        """time, client, round, messages used"""
        self.used: list[tuple[int, int, int, int]] = []
        """client, round, sender, age"""
        self.dropped: list[tuple[int, str]] = []
        """stamp, outcome"""
        self.changes: list[tuple[float, str]] = []
        """time, name of the change"""

    def message_sent(self, message: Message) -> None:
        self.sent.append((self.kernel.now, message.sender, message.recipient, message.round))
        self.payloads.append(message.payload.vector)

    def message_lost(self, message: Message, reason: str) -> None:
        self.lost.append((self.kernel.now, message.sender, message.recipient, reason))

    def message_delivered(self, message: Message) -> None:
        self.delivered.append((self.kernel.now, message.sender, message.recipient, message.round))

    def round_finished(self, client: int, round_: int, messages: Sequence[UsedMessage]) -> None:
        self.rounds.append((self.kernel.now, client, round_, len(messages)))
        self.used += [(client, round_, message.sender, round_ - message.round) for message in messages]

    def message_dropped(self, message: Message, outcome: str, reason: str) -> None:
        self.dropped.append((message.round, outcome))

    def changed(self, fault, change) -> None:
        fields = change.fields
        self.changes.append((self.kernel.now, f"{fields['kind']} {fields['phase']}"))


class TinyWorld:
    """A few clients with a fake trainer and constant links: exact simulated times, models of two numbers."""

    def __init__(
        self,
        neighbours: Sequence[Sequence[int]] = TRIANGLE,
        compute: Sequence[float] | None = None,
        latency_s: float | Callable[[float], float] = 0.25,
        rounds: int = 2,
        wait: Wait = FOR_ALL,
        staleness: Staleness = DROP,
        loses: Loss = lossless,
        byzantine: Sequence[int] = (),
        plan: Plan = HONEST,
        method: Method | None = None,
        faults: Sequence[Any] = (),
        direction: Direction | None = None,
        **network: Any,
    ) -> None:
        num_clients = len(neighbours)
        compute = compute or [1.0] * num_clients
        self.kernel = Kernel()
        self.log = Log(self.kernel)
        streams = Streams(0)
        latency = latency_s if callable(latency_s) else lambda u: latency_s
        if "bandwidth" in network:
            network["bandwidth"] = network["bandwidth"](self.kernel)
        self.clients: list[Client] = []
        self.network = Network(
            self.kernel,
            num_clients,
            self.clients,
            self.log,
            lambda i, j: Link(i, j, streams.key("link", i, j), latency=latency, loses=loses),
            **network,
        )
        method = method or Predicting(RunInfo(rounds=rounds), lambda_=1.0, aggregator=mean)
        self.adversary = Adversary(
            plan,
            byzantine,
            byzantine,
            self.kernel,
            self.network,
            self.clients,
            streams,
            method=method,
        )
        self.ended_at_s: float | None = None
        training_times = TrainingTimes(
            ComputeTimes(lambda u, client: compute[client], [1] * num_clients, 0.0, streams)
        )
        shared = ClientContext(
            kernel=self.kernel,
            network=self.network,
            executor=fake_executor(method, direction),
            observer=self.log,
            clients=self.clients,
            observing_adversaries=[self.adversary] if byzantine else [],
            training_times=training_times,
            wait=wait,
            staleness=staleness,
            rounds=rounds,
            exchanges=method.exchanges,
            message_form=Payload(torch.zeros(2)).form,
            trained_model=method.trained_model,
            messages_per_sender=4,
            prefer="round",
            on_training=lambda: None,
            on_round=lambda client: None,
        )

        def initial_state(client: int) -> State:
            return method.init(
                torch.zeros(1, 2), [ClientView(client, 0, len(neighbours[client]), Services())]
            )

        for i, others in enumerate(neighbours):
            adversary = self.adversary if i in byzantine else None
            self.clients.append(Client(i, others, adversary, initial_state(i), shared))
        self.world = World(
            self.kernel,
            self.network,
            self.clients,
            self.log,
            training_times,
            changes=merged(map(iter, faults)),
            initial_state=initial_state,
            on_end=self._end,
        )

    def run(self, until_s: float | None = None) -> "TinyWorld":
        """Run to the end, or until a time."""
        self.world.start()
        self.kernel.run(until_s)
        return self

    def times(self, client: int) -> list[float]:
        """Return the times at which a client finished its rounds."""
        return [time for time, who, _, _ in self.log.rounds if who == client]

    def used(self, client: int) -> list[tuple[int, int, int]]:
        """Return the messages that a client used: round, sender, age."""
        return [entry[1:] for entry in self.log.used if entry[0] == client]

    def _end(self) -> None:
        self.ended_at_s = self.kernel.now
