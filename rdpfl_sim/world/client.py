"""A client: the process that lives Algorithm 1, one round after the other, in its own time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simpy import Event, Interrupt
from torch import Tensor

from rdpfl_sim.errors import note_client_round
from rdpfl_sim.methods.base import Batch, ClientView, Method, Outgoing, State, Trained, TrainingTask
from rdpfl_sim.methods.batching import Received, UpdateInput, message_stats
from rdpfl_sim.methods.deferred import Update, Updates
from rdpfl_sim.methods.payload import Payload
from rdpfl_sim.world.adversary.adversary import Adversary
from rdpfl_sim.world.kernel import Alarm, Kernel
from rdpfl_sim.world.mailbox import Mailbox
from rdpfl_sim.world.network.message import Broadcast, Message
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.observer import Observer
from rdpfl_sim.world.waiting import Staleness, Wait


class TrainingOutcome(Protocol):
    """Result of one client's local training."""

    @property
    def w(self) -> Tensor:
        """The trained model (d,)."""

    @property
    def num_steps(self) -> int:
        """K, the number of SGD steps."""

    @property
    def loss(self) -> float:
        """Mean training loss over the K steps."""

    @property
    def second_w(self) -> Tensor | None:
        """The second model, if the task has one."""

    @property
    def direction(self) -> Tensor | None:
        """The mean gradient along the way, if it is known."""


class Pending(Protocol):
    """A training job that was submitted; it may run now, later or elsewhere."""

    def result(self) -> TrainingOutcome:
        """Return the result, and wait for it if necessary."""


class Trainer(Protocol):
    """Where local training runs. A job has all its inputs at submission."""

    def submit(self, client: int, round_: int, task: TrainingTask, poisoned: bool) -> Pending:
        """Start K local steps of the client, on its data or on a poisoned copy of it."""

    def batch(self, client: int, round_: int) -> Batch:
        """Some of the client's own data, another batch in every round."""


class Phase:
    """What a client is doing. Plain strings: looking up an Enum's member takes too long for every message."""

    TRAINING = "training"
    SENDING = "sending"
    GATHERING = "gathering"
    FINISHED = "finished"


@dataclass
class Life:
    """Everything about a client that changes in the course of a run.

    It is here, not in the locals of a generator, so that it can be written down and taken up again.
    """

    STATE = (
        *("latest", "round", "num_rounds", "last_round", "is_untested"),
        *("phase", "until_s", "poisoned", "own", "payload"),
    )

    latest: Update
    """What its last round has made of its learning state, which may not have been computed yet."""
    mailbox: Mailbox
    round: int = 1
    num_rounds: int = 0
    """Rounds that were finished; fewer than `round` says if some were skipped to catch up."""
    last_round: int = 0
    """The last round that was finished, or 0."""
    is_untested: bool = True
    """Whether the model has changed since its last evaluation: by a round, or by a fresh start."""
    phase: str = Phase.TRAINING
    until_s: float | None = None
    poisoned: bool = False
    """Whether it trains on poisoned data in this round."""
    own: Trained | None = None
    payload: Payload | None = None

    @property
    def learning(self) -> State:
        """Its learning state; computed now if that was put off."""
        return self.latest.state

    @learning.setter
    def learning(self, state: State) -> None:
        self.latest = Update(state)


@dataclass(frozen=True)
class Surroundings:
    """What all clients share."""

    kernel: Kernel
    network: Network
    trainer: Trainer
    method: Method
    updates: Updates
    onlookers: Sequence[Adversary]
    """Adversaries that see updates as soon as they are computed."""
    observer: Observer
    degree: Callable[[int], int]
    seed: Callable[[str, int, int], int]
    wait: Wait
    staleness: Staleness
    rounds: int
    duration_s: Callable[[int, int], float]
    on_training: Callable[[], None]
    on_round: Callable[[Client], None]
    on_finish: Callable[[int], None]

    def batch(self, client: int, round_: int) -> Batch:
        """Return a batch of a client's own data, another one in every round."""
        return self.trainer.batch(client, round_)

    def view(self, client: int, round_: int) -> ClientView:
        """Return a client as a method sees it."""
        return ClientView(client, round_, self.degree(client), self)


class Client:
    """One client, honest or Byzantine. A Byzantine client differs only in what it sends, and when."""

    STATE = ("neighbours",)

    def __init__(
        self,
        client: int,
        neighbours: Sequence[int],
        adversary: Adversary | None,
        life: Life,
        world: Surroundings,
    ) -> None:
        self.id = client
        self.neighbours = neighbours
        self.adversary = adversary
        self.life = life
        self.world = world
        life.mailbox.num_needed = self._num_needed
        life.mailbox.on_enough = self._go_on if adversary is None else self._on_enough
        self.receive = life.mailbox.put if adversary is None else self._receive_and_tell
        """What happens to a message that arrives."""
        self._job: Pending | None = None
        self.awaited: Event | None = None
        """What its process waits for; it may have been triggered at this instant."""
        self.alarm = Alarm(world.kernel, self.stop_waiting)

    def run(self) -> Generator[Event, Any, None]:
        """Algorithm 1, as one client lives it.

        It is taken up where it was left: in its phase, and waiting for what it was waiting for.
        """
        life = self.life
        try:
            while life.round <= self.world.rounds:
                if life.phase is Phase.TRAINING:
                    yield self.awaited or self.train()
                    self.finish_training()
                if life.phase is Phase.SENDING:
                    if self.awaited or not self.knows_enough():
                        yield self.awaited or self.wait_for_knowledge()
                    self.send()
                if life.phase is Phase.GATHERING:
                    if self.awaited or not life.mailbox.has_enough:
                        yield self.awaited or self.wait_for_neighbours()
                    self.update()
        except Interrupt:
            return  # it has crashed, or left
        except Exception as error:
            note_client_round(error, self.id, life.round)
            raise
        life.phase = Phase.FINISHED
        self.world.on_finish(self.id)

    def train(self) -> Event:
        """Submit K steps of local SGD; the event fires when the scenario says that they are done."""
        life, world = self.life, self.world
        now_s = world.kernel.now
        duration_s = world.duration_s(self.id, life.round)
        life.until_s = now_s + duration_s
        world.observer.training_started(self.id, life.round, duration_s)
        life.poisoned = self.adversary is not None and self.adversary.poisons(self)
        life.latest.then(self._submit)
        self.awaited = world.kernel.fire(Event(world.kernel), life.until_s)
        return self.awaited

    def finish_training(self) -> None:
        """Take the result of the local training."""
        life, world = self.life, self.world
        if self._job is None:
            world.updates.compute()  # its own was put off, and its training with it
        assert self._job is not None
        result, self._job, self.awaited = self._job.result(), None, None
        life.own = trained_row(result)
        world.observer.training_finished(self.id, life.round, result.loss, result.num_steps)
        world.on_training()
        if not world.method.exchanges:
            life.phase = Phase.GATHERING  # of nothing, as nobody is silent
            return
        life.mailbox.call_the_roll(life.round)
        view = world.view(self.id, life.round)
        life.learning, outgoing = world.method.payload(life.learning, life.own, [view])
        life.payload = single_payload(outgoing)
        for adversary in world.onlookers:
            if self.id in adversary.sees_updates_of:
                adversary.see(self.id, life.round, life.payload)
        life.phase = Phase.SENDING

    def knows_enough(self) -> bool:
        """Whether it can send its message; a Byzantine client may have to see those of others first."""
        return self.adversary is None or self.adversary.is_ready(self)

    def wait_for_knowledge(self) -> Event:
        """An event that fires when the adversary knows what it wants to know, or its patience ends."""
        assert self.adversary is not None
        self.adversary.waiting[self.id] = None
        return self._wait(self.adversary.plan.patience_s)

    def send(self) -> None:
        """Send the update to every neighbour; a Byzantine client sends what the adversary says."""
        life, world = self.life, self.world
        assert life.payload is not None
        self.awaited = None
        if self.adversary is not None:
            self.adversary.send(self, life.payload)
        else:
            world.network.send(self.id, life.round, life.round, life.payload, self.neighbours)
        life.payload = None
        life.phase = Phase.GATHERING

    def wait_for_neighbours(self) -> Event:
        """An event that fires when enough neighbours have been heard, or at the deadline."""
        return self._wait(self.world.wait.timeout_s)

    def deadline_s(self, round_: int) -> float | None:
        """When the client will stop waiting for its neighbours in this round, if that is known."""
        life, timeout_s = self.life, self.world.wait.timeout_s
        if timeout_s is None or life.round != round_ or life.until_s is None:
            return None
        if life.phase is Phase.TRAINING:
            return life.until_s + timeout_s
        return life.until_s if life.phase is Phase.GATHERING else None

    def meet(self, neighbours: Sequence[int]) -> None:
        """The neighbourhood changes; those who are gone are not waited for."""
        self.neighbours = neighbours
        mailbox = self.life.mailbox
        mailbox.meet(neighbours)
        mailbox.num_needed = self._num_needed
        if mailbox.has_enough:
            self._on_enough()

    def stop(self) -> None:
        """Lose all that belongs to the round; what is left is the model, its history and the mailbox."""
        self.world.updates.compute()  # the training that follows one that was put off must not begin later
        life = self.life
        life.phase, life.until_s, life.own, life.payload = Phase.TRAINING, None, None, None
        self._job = self.awaited = None
        self.alarm.cancel()
        if self.adversary is not None:
            self.adversary.forget(self.id)

    def update(self) -> None:
        """Estimate the neighbourhood direction and take the personalised step."""
        life, world = self.life, self.world
        assert life.own is not None
        self.awaited = None
        round_ = life.round
        messages = life.mailbox.take(round_, world.staleness.max_age)
        received = [self._received(message.broadcast) for message in messages]
        one = UpdateInput(life.learning, life.own, received, world.view(self.id, round_))
        inspection = message_stats(world.method, one) if world.observer.inspects and received else None
        life.latest = world.updates.begin(one)
        world.observer.round_finished(self.id, round_, messages, life.latest, inspection)
        life.own = None
        life.num_rounds += 1
        life.last_round, life.is_untested = round_, True
        world.on_round(self)
        life.round += 1
        life.phase = Phase.TRAINING

    def wait_again(self) -> None:
        """Wait for what it was waiting for when the run was left; `run` takes it up there."""
        self.awaited = Event(self.world.kernel)
        if self.life.phase is Phase.TRAINING:
            self._submit()

    def stop_waiting(self) -> None:
        """Go on, if it waits for others."""
        self.alarm.cancel()
        if self.awaited is not None and not self.awaited.triggered:
            self.world.kernel.fire(self.awaited, self.world.kernel.now)

    @property
    def _num_needed(self) -> int:
        """How many neighbours the client waits for."""
        return self.world.wait.num_needed(len(self.neighbours)) if self.world.method.exchanges else 0

    def _on_enough(self) -> None:
        """Enough neighbours have been heard, if that is what the client is waiting for."""
        if self.life.phase is Phase.GATHERING:
            self.stop_waiting()

    def _go_on(self) -> None:
        """Do as `_on_enough`, with nothing left to do in this event: the client's process may go on in it."""
        awaited = self.awaited
        if self.life.phase is Phase.GATHERING and awaited is not None and not awaited.triggered:
            self.alarm.cancel()
            self.world.kernel.fire_at_once(awaited)

    def _receive_and_tell(self, message: Message) -> None:
        """Take a message in, and let the adversary know."""
        assert self.adversary is not None
        self.life.mailbox.put(message)
        self.adversary.overhear(self, message)

    def _submit(self) -> None:
        life = self.life
        self._job = self.world.trainer.submit(
            self.id, life.round, self.world.method.training(life.learning), life.poisoned
        )

    def _wait(self, timeout_s: float | None) -> Event:
        self.awaited = Event(self.world.kernel)
        self.life.until_s = None if timeout_s is None else self.world.kernel.now + timeout_s
        if self.life.until_s is not None:
            self.alarm.set(self.life.until_s)
        return self.awaited

    def _received(self, broadcast: Broadcast) -> Received:
        """Return a message as a method sees it now."""
        age = self.life.round - broadcast.round
        weight = 1.0 if age == 0 else self.world.staleness.weight(age)
        degree = self.world.degree(broadcast.sender)
        return Received(broadcast.sender, degree, age, weight, broadcast.payload)


def trained_row(result: TrainingOutcome) -> Trained:
    """Return the result of one client's training as a batch of one row."""
    return Trained(
        result.w.unsqueeze(0),
        (result.num_steps,),
        None if result.second_w is None else result.second_w.unsqueeze(0),
        None if result.direction is None else result.direction.unsqueeze(0),
    )


def single_payload(outgoing: Outgoing) -> Payload:
    """Return what the only client of a batch sends."""
    [vector] = outgoing.vectors
    return Payload(vector, None if outgoing.masks is None else outgoing.masks[0])
