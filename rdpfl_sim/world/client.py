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
from rdpfl_sim.world.kernel import Alarm, Kernel
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
    num_heard: int = 0
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
    on_training: Callable[[], None]
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
        self.num_needed = world.wait.num_needed(len(neighbours))
        self._job: Pending | None = None
        self._awaited: Event | None = None
        self._alarm = Alarm(world.kernel, self._stop_waiting)

    def run(self) -> Generator[Event, Any, None]:
        """Algorithm 1, as one client lives it."""
        while self.life.round <= self.world.rounds:
            yield self.start_training()
            self.finish_training()
            if self.world.method.exchanges:
                if self.byzantine and not self.world.adversary.knows(self.life.round):
                    yield self.wait_for_knowledge()
                self.send()
                self.call_the_roll()
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
        self.world.on_training()

    def wait_for_knowledge(self) -> Event:
        """An event that fires when the adversary knows the honest updates of the round, or patience ends."""
        self.life.phase = Phase.SCHEMING
        self.world.adversary.notify(self.id, self.life.round, self._stop_waiting)
        return self._wait(self.world.adversary.patience_s)

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

    def call_the_roll(self) -> None:
        """See who has been heard in this round; `life.unheard` may still be."""
        self.life.num_heard, self.life.unheard = self.life.mailbox.roll_call(self.life.round)

    def has_heard_enough(self) -> bool:
        """Whether enough neighbours have been heard in this round, or nobody is left to wait for."""
        return self.life.num_heard >= self.num_needed or not self.life.unheard

    def wait_for_neighbours(self) -> Event:
        """An event that fires when enough neighbours have been heard, or at the deadline."""
        self.life.phase = Phase.GATHERING
        return self._wait(self.world.wait.timeout_s)

    def receive(self, message: Message) -> None:
        """A message arrives; it may be the one that the client was waiting for."""
        life, sender = self.life, message.sender
        life.mailbox.put(message)
        if sender in life.unheard:
            if life.mailbox.heard(sender, life.round):
                life.num_heard += 1
            elif not life.mailbox.hopeless(sender, life.round):
                return
            life.unheard.discard(sender)
            if life.phase is Phase.GATHERING and self.has_heard_enough():
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

    def _wait(self, timeout_s: float | None) -> Event:
        self._awaited = Event(self.world.kernel)
        self.life.until_s = None if timeout_s is None else self.world.kernel.now + timeout_s
        if self.life.until_s is not None:
            self._alarm.set(self.life.until_s)
        return self._awaited

    def _stop_waiting(self) -> None:
        self._alarm.cancel()
        if self._awaited is not None:
            self._awaited.succeed()
            self._awaited = None
