"""A client: the process that runs Algorithm 1, one round after the other."""

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
from rdpfl_sim.world.kernel import Kernel, Timer
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


class TrainingJob(Protocol):
    """A submitted training job. It may run at once, later or elsewhere."""

    def result(self) -> TrainingOutcome:
        """Return the result, and wait for it if necessary."""


class Trainer(Protocol):
    """Runs local training. A job has all its inputs at submission."""

    def submit(self, client: int, round_: int, task: TrainingTask, poisoned: bool) -> TrainingJob:
        """Start K local steps of a client, on its data or on a poisoned copy of them."""

    def batch(self, client: int, round_: int) -> Batch:
        """Return a batch of a client's own data, another one in every round."""


class Phase:
    """Phases of a round. Plain strings: accessing a member of an Enum is too slow for every message."""

    TRAINING = "training"
    SENDING = "sending"
    GATHERING = "gathering"
    FINISHED = "finished"


@dataclass
class ClientState:
    """Everything about a client that changes during a run.

    It is not kept in the local variables of a generator, so that a checkpoint can hold it.
    """

    STATE = (
        *("latest_update", "round", "num_rounds", "last_round", "needs_evaluation"),
        *("phase", "until_s", "poisoned", "trained", "payload"),
    )

    latest_update: Update
    """Result of the last round, which may not have been computed yet."""
    mailbox: Mailbox
    round: int = 1
    num_rounds: int = 0
    """Finished rounds; fewer than `round` - 1 if rounds were skipped to catch up."""
    last_round: int = 0
    """The last finished round, or 0."""
    needs_evaluation: bool = True
    """Whether the model has changed since its last evaluation, by a round or by a fresh start."""
    phase: str = Phase.TRAINING
    until_s: float | None = None
    """End of the current training or of waiting, if known."""
    poisoned: bool = False
    """Whether the client trains on poisoned data in this round."""
    trained: Trained | None = None
    payload: Payload | None = None

    @property
    def learning(self) -> State:
        """The method's state; computed now if it was deferred."""
        return self.latest_update.state

    @learning.setter
    def learning(self, state: State) -> None:
        self.latest_update = Update(state)


@dataclass(frozen=True)
class ClientContext:
    """Everything that all clients of a run share."""

    kernel: Kernel
    network: Network
    trainer: Trainer
    method: Method
    updates: Updates
    observing_adversaries: Sequence[Adversary]
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
        state: ClientState,
        context: ClientContext,
    ) -> None:
        self.id = client
        self.neighbours = neighbours
        self.adversary = adversary
        self.state = state
        self.context = context
        self.phases = {
            Phase.TRAINING: self.train,
            Phase.SENDING: self.send,
            Phase.GATHERING: self.gather,
        }
        state.mailbox.num_required = self._num_required
        state.mailbox.on_ready = self._on_ready
        self.pending_event: Event | None = None
        """The event that the client's process waits for; it may have been triggered at this instant."""
        self.timer = Timer(context.kernel, self.stop_waiting)
        self._job: TrainingJob | None = None

    def run(self) -> Generator[Event, Any, None]:
        """Run Algorithm 1. A restored client continues in the phase it was in."""
        try:
            while self.state.round <= self.context.rounds:
                yield from self.phases[self.state.phase]()
        except Interrupt:
            return  # the client has crashed or left
        except Exception as error:
            note_client_round(error, self.id, self.state.round)
            raise
        self.state.phase = Phase.FINISHED
        self.context.on_finish(self.id)

    def train(self) -> Generator[Event, Any, None]:
        """Train for the simulated duration that the scenario gives; then determine what to send."""
        state, context = self.state, self.context
        yield self.pending_event or self._start_training()
        result = self._take_training_result()
        state.trained = trained_row(result)
        context.observer.training_finished(self.id, state.round, result.loss, result.num_steps)
        context.on_training()
        if not context.method.exchanges:
            state.phase = Phase.GATHERING  # no neighbour is pending
            return
        state.mailbox.start_round(state.round)
        view = context.view(self.id, state.round)
        state.learning, outgoing = context.method.payload(state.learning, state.trained, [view])
        state.payload = single_payload(outgoing)
        for adversary in context.observing_adversaries:
            if self.id in adversary.observed_clients:
                adversary.on_update(self.id, state.round, state.payload)
        state.phase = Phase.SENDING

    def send(self) -> Generator[Event, Any, None]:
        """Send the update to every neighbour; a Byzantine client sends what its adversary decides."""
        state = self.state
        if self.adversary is None:
            assert state.payload is not None
            self.context.network.send(self.id, state.round, state.round, state.payload, self.neighbours)
        else:
            if self.pending_event or not self.adversary.is_ready(self):
                yield self.pending_event or self._wait_for_observations(self.adversary)
            self.pending_event = None
            assert state.payload is not None
            self.adversary.send(self, state.payload)
        state.payload = None
        state.phase = Phase.GATHERING

    def gather(self) -> Generator[Event, Any, None]:
        """Wait for neighbours, use their messages to update the model, and finish the round."""
        state, context, round_ = self.state, self.context, self.state.round
        if self.pending_event or not state.mailbox.is_ready:
            yield self.pending_event or self._wait(context.wait.timeout_s)
        self.pending_event = None
        assert state.trained is not None
        messages = state.mailbox.take(round_, context.staleness.max_age)
        received = [self._received(message.broadcast) for message in messages]
        one = UpdateInput(state.learning, state.trained, received, context.view(self.id, round_))
        stats = message_stats(context.method, one) if context.observer.inspects and received else None
        state.latest_update = context.updates.begin(one)
        context.observer.round_finished(self.id, round_, messages, state.latest_update, stats)
        state.trained = None
        state.num_rounds += 1
        state.last_round, state.needs_evaluation = round_, True
        context.on_round(self)
        state.round += 1
        state.phase = Phase.TRAINING

    def receive(self, message: Message) -> None:
        """Store an arriving message; the adversary of a Byzantine client sees it too."""
        self.state.mailbox.put(message)
        if self.adversary is not None:
            self.adversary.on_message(self, message)

    def deadline_s(self, round_: int) -> float | None:
        """Return when the client will stop waiting for its neighbours in this round, if that is known."""
        state, timeout_s = self.state, self.context.wait.timeout_s
        if timeout_s is None or state.round != round_ or state.until_s is None:
            return None
        if state.phase is Phase.TRAINING:
            return state.until_s + timeout_s
        return state.until_s if state.phase is Phase.GATHERING else None

    def set_neighbours(self, neighbours: Sequence[int]) -> None:
        """Change the neighbourhood. Former neighbours are no longer waited for."""
        self.neighbours = neighbours
        mailbox = self.state.mailbox
        mailbox.set_neighbours(neighbours)
        mailbox.num_required = self._num_required
        if mailbox.is_ready:
            self._on_ready()

    def stop(self) -> None:
        """Discard everything that belongs to the round; the model, its history and the mailbox remain."""
        self.context.updates.compute()  # a training that follows a deferred update must not start later
        state = self.state
        state.phase, state.until_s, state.trained, state.payload = Phase.TRAINING, None, None, None
        self._job = self.pending_event = None
        self.timer.cancel()
        if self.adversary is not None:
            self.adversary.on_stop(self.id)

    def restore_waiting(self) -> None:
        """Wait again for the event that the client waited for when the checkpoint was written."""
        self.pending_event = Event(self.context.kernel)
        if self.state.phase is Phase.TRAINING:
            self._submit()

    def stop_waiting(self) -> None:
        """Continue now, if the client waits for other clients."""
        self.timer.cancel()
        if self.pending_event is not None and not self.pending_event.triggered:
            self.context.kernel.trigger_at(self.pending_event, self.context.kernel.now)

    @property
    def _num_required(self) -> int:
        """The number of neighbours that the client waits for."""
        context = self.context
        return context.wait.num_needed(len(self.neighbours)) if context.method.exchanges else 0

    def _on_ready(self) -> None:
        if self.state.phase is Phase.GATHERING:
            self.stop_waiting()

    def _start_training(self) -> Event:
        """Submit K steps of local SGD; return an event that fires after their simulated duration."""
        state, context = self.state, self.context
        duration_s = context.duration_s(self.id, state.round)
        state.until_s = context.kernel.now + duration_s
        context.observer.training_started(self.id, state.round, duration_s)
        state.poisoned = self.adversary is not None and self.adversary.poisons(self)
        state.latest_update.then(self._submit)
        self.pending_event = context.kernel.trigger_at(Event(context.kernel), state.until_s)
        return self.pending_event

    def _submit(self) -> None:
        state, context = self.state, self.context
        task = context.method.training(state.learning)
        self._job = context.trainer.submit(self.id, state.round, task, state.poisoned)

    def _take_training_result(self) -> TrainingOutcome:
        if self._job is None:
            self.context.updates.compute()  # the client's update was deferred, and its training with it
        assert self._job is not None
        result, self._job, self.pending_event = self._job.result(), None, None
        return result

    def _wait_for_observations(self, adversary: Adversary) -> Event:
        """Return an event that fires when the adversary has seen enough, or when its patience ends."""
        adversary.waiting[self.id] = None
        return self._wait(adversary.plan.patience_s)

    def _wait(self, timeout_s: float | None) -> Event:
        self.pending_event = Event(self.context.kernel)
        self.state.until_s = None if timeout_s is None else self.context.kernel.now + timeout_s
        if self.state.until_s is not None:
            self.timer.set(self.state.until_s)
        return self.pending_event

    def _received(self, broadcast: Broadcast) -> Received:
        """Return a message as a method sees it now."""
        age = self.state.round - broadcast.round
        weight = 1.0 if age == 0 else self.context.staleness.weight(age)
        degree = self.context.degree(broadcast.sender)
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
    assert len(outgoing.vectors) == 1
    return Payload(outgoing.vectors[0], None if outgoing.masks is None else outgoing.masks[0])
