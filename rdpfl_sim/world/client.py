"""A client: the process that lives Algorithm 1, one round after the other, in its own time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from simpy import Event, Timeout
from torch import Tensor

from rdpfl_sim.maths.types import Local, Received
from rdpfl_sim.methods.base import Method, State
from rdpfl_sim.world.adversary import Adversary
from rdpfl_sim.world.kernel import DEADLINE, Kernel
from rdpfl_sim.world.mailbox import Mailbox
from rdpfl_sim.world.message import Message
from rdpfl_sim.world.network import Network
from rdpfl_sim.world.observer import Observer
from rdpfl_sim.world.waiting import Staleness, Wait


class Pending(Protocol):
    """A training job that was submitted; it may run now, later or elsewhere."""

    def result(self) -> Local:
        """The outcome; waits for it if need be."""


class Trainer(Protocol):
    """Where local training runs. A job has all its inputs at submission."""

    def submit(self, client: int, round_: int, w: Tensor) -> Pending:
        """Start K local steps of the client from model w."""


class Phase(Enum):
    """What a client is doing."""

    TRAINING = "training"
    SCHEMING = "scheming"
    GATHERING = "gathering"
    FINISHED = "finished"


@dataclass
class Life:
    """Everything about a client that changes in the course of a run.

    It is here, not in the locals of a generator, so that it can be written down and taken up again.
    """

    learning: State
    mailbox: Mailbox
    round: int = 1
    phase: Phase = Phase.TRAINING
    until_s: float | None = None
    own: Local | None = None
    unheard: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Surroundings:
    """What all clients share."""

    kernel: Kernel
    network: Network
    trainer: Trainer
    method: Method
    adversary: Adversary
    observer: Observer
    wait: Wait
    staleness: Staleness
    rounds: int
    duration_s: Callable[[int, int], float]
    on_round: Callable[[Client], None]


class Client:
    """One client, honest or Byzantine. A Byzantine client differs only in what it sends."""

    def __init__(
        self, client: int, neighbours: Sequence[int], byzantine: bool, life: Life, world: Surroundings
    ) -> None:
        self.id = client
        self.neighbours = neighbours
        self.byzantine = byzantine
        self.life = life
        self.world = world
        self.max_unheard = len(neighbours) - world.wait.num_needed(len(neighbours))
        self._job: Pending | None = None
        self._enough: Event | None = None

    def run(self) -> Generator[Event, Any, None]:
        """Algorithm 1, as one client lives it."""
        while self.life.round <= self.world.rounds:
            yield self.start_training()
            self.finish_training()
            if self.world.method.exchanges:
                if self.byzantine:
                    yield from self.scheme()
                self.send()
                if not self.has_heard_enough():
                    yield self.wait_for_neighbours()
            self.update()
        self.life.phase = Phase.FINISHED

    def start_training(self) -> Event:
        """Submit K steps of local SGD; the event fires when the scenario says that they are done."""
        life, world = self.life, self.world
        life.phase = Phase.TRAINING
        duration_s = world.duration_s(self.id, life.round)
        life.until_s = world.kernel.now + duration_s
        world.observer.training_started(self.id, life.round, duration_s)
        self._job = world.trainer.submit(self.id, life.round, life.learning.w)
        return Timeout(world.kernel, duration_s)

    def finish_training(self) -> None:
        """Take the result of the local training."""
        life = self.life
        assert self._job is not None
        life.own, self._job = self._job.result(), None
        self.world.observer.training_finished(self.id, life.round, life.own.loss, life.own.num_steps)

    def scheme(self) -> Generator[Event, Any, None]:
        """A Byzantine client waits for what the adversary wants to know."""
        self.life.phase = Phase.SCHEMING
        yield from self.world.adversary.wait(self.life.round)

    def send(self) -> None:
        """Send the update to every neighbour; a Byzantine client sends what the adversary says."""
        life, world = self.life, self.world
        assert life.own is not None
        payload = world.method.outgoing(life.learning, life.own)
        if self.byzantine:
            messages = world.adversary.messages(self.id, life.round, payload)
        else:
            world.adversary.observe(self.id, life.round, payload)
            messages = dict.fromkeys(self.neighbours, payload)
        world.network.send(self.id, life.round, messages)

    def has_heard_enough(self) -> bool:
        """Whether enough neighbours have been heard in this round; the others are `life.unheard`."""
        life = self.life
        life.unheard = life.mailbox.unheard(life.round)
        return len(life.unheard) <= self.max_unheard

    def wait_for_neighbours(self) -> Event:
        """An event that fires when enough neighbours have been heard, or at the deadline."""
        life, world = self.life, self.world
        life.phase = Phase.GATHERING
        life.until_s = None
        self._enough = Event(world.kernel)
        if world.wait.timeout_s is not None:
            life.until_s = world.kernel.now + world.wait.timeout_s
            world.kernel.call_later(world.wait.timeout_s, self._on_deadline, self._enough, DEADLINE)
        return self._enough

    def receive(self, message: Message) -> None:
        """A message arrives; it may be the one that the client was waiting for."""
        life = self.life
        life.mailbox.put(message)
        if message.sender in life.unheard and life.mailbox.heard(message.sender, life.round):
            life.unheard.discard(message.sender)
            if self._enough is not None and len(life.unheard) <= self.max_unheard:
                self._stop_waiting()

    def update(self) -> None:
        """Estimate the neighbourhood direction and take the personalised step."""
        life, world = self.life, self.world
        assert life.own is not None
        received = []
        for message in life.mailbox.take(life.round, world.staleness.max_age):
            age = life.round - message.round
            received.append(
                Received(message.sender, age, world.staleness.weight(age), message.payload.vector)
            )
        life.learning, diagnostics = world.method.update(life.learning, life.own, received)
        world.observer.round_finished(self.id, life.round, received, diagnostics)
        life.own = None
        life.unheard = set()
        world.on_round(self)
        life.round += 1

    def _on_deadline(self, event: Any) -> None:
        if event.value is self._enough:  # otherwise it belongs to an earlier round
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        assert self._enough is not None
        self._enough.succeed()
        self._enough = None
