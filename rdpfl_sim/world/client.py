"""A client: the process that runs Algorithm 1, one round after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass

from simpy import Event, Interrupt
from torch import Tensor

from rdpfl_sim.errors import note_client_round
from rdpfl_sim.methods.base import Form, State, Trained
from rdpfl_sim.methods.batching import Received, Updated
from rdpfl_sim.world.adversary.adversary import Adversary
from rdpfl_sim.world.compute_time import TrainingTimes
from rdpfl_sim.world.jobs import FinishedJob, Job, JobExecutor, RoundJob
from rdpfl_sim.world.kernel import Kernel, Timer
from rdpfl_sim.world.mailbox import RESTARTED, Mailbox, Preference
from rdpfl_sim.world.network.message import Broadcast, Message
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.observer import Observer, UsedMessage
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait


class Phase:
    """Phases of a round, as plain strings: enum members are too slow to access for every message."""

    TRAINING = "training"
    SENDING = "sending"
    GATHERING = "gathering"
    FINISHED = "finished"


@dataclass(frozen=True)
class TrainedModel:
    """The model of a client at the end of its last local training, or its initial model."""

    time_s: float
    w: Tensor  # (1, d)


@dataclass
class ClientState:
    """Everything about a client that changes during a run, except its mailbox and its neighbours.

    Checkpoints contain it, so it is not stored in local variables of a generator.
    """

    STATE = (
        *("job", "trained", "updated_s", "unreported", "round", "num_rounds", "last_round"),
        *("is_trained_new", "is_updated_new", "phase", "until_s", "poisoned"),
    )

    job: Job
    """The latest job: the update after the last finished round and the training of the current round."""
    trained: TrainedModel
    updated_s: float = 0.0
    """The end of the last finished round, or the time of a fresh start."""
    unreported: list[UsedMessage] | None = None
    """The messages used in the last finished round, until its update is reported."""
    round: int = 1
    num_rounds: int = 0
    """Finished rounds; fewer than `round` - 1 if rounds were skipped to catch up."""
    last_round: int = 0
    """The last finished round, or 0."""
    is_trained_new: bool = True
    """Whether a training or a fresh start has changed the trained model since the last evaluation."""
    is_updated_new: bool = True
    """Whether a round or a fresh start has changed the updated model since the last evaluation."""
    phase: str = Phase.TRAINING
    until_s: float | None = None
    """End of the current training or wait, if known."""
    poisoned: bool = False
    """Whether the client trains on poisoned data in this round."""

    @property
    def learning(self) -> State:
        """The method's state after the last finished round."""
        return self.job.updated.state


@dataclass(frozen=True)
class ClientContext:
    """Settings and services shared by all clients of a run."""

    kernel: Kernel
    network: Network
    executor: JobExecutor
    observer: Observer
    clients: Sequence[Client]
    """All clients of the run, in order. The list is complete when the first client starts."""
    observing_adversaries: Sequence[Adversary]
    """Adversaries that observe payloads at the end of the local training."""
    training_times: TrainingTimes
    wait: Wait
    staleness: Staleness
    rounds: int
    exchanges: bool
    """Whether clients send messages."""
    message_form: Form
    trained_model: Callable[[Trained], Tensor]
    """Returns the model that a client uses after its local training; see `Method`."""
    messages_per_sender: int
    prefer: Preference
    on_training: Callable[[], None]
    """Called after every local training."""
    on_round: Callable[[Client], None]
    """Called after every round."""


class Client:
    """One client. The adversary of a Byzantine client sends its messages and may poison its training data."""

    STATE = ("neighbours",)

    def __init__(
        self,
        client: int,
        neighbours: Sequence[int],
        adversary: Adversary | None,
        learning: State,
        context: ClientContext,
    ) -> None:
        self.id = client
        self.neighbours = neighbours
        self.adversary = adversary
        self.context = context
        self.state = ClientState(FinishedJob(Updated(learning)), TrainedModel(0.0, learning.w))
        self.mailbox = Mailbox(
            neighbours,
            context.observer,
            form=context.message_form,
            num_rounds=context.rounds,
            capacity=context.messages_per_sender,
            prefer=context.prefer,
            num_required=self._num_required,
            on_ready=self._on_ready,
        )
        self.phases = {
            Phase.TRAINING: self.train,
            Phase.SENDING: self.send,
            Phase.GATHERING: self.gather,
        }
        self.pending_event: Event | None = None
        """The event that the client's process waits for. It may already be triggered at this instant.

        Set before a phase only when a run is restored during a wait.
        """
        self.timer = Timer(context.kernel, self.stop_waiting)

    def run(self, on_finish: Callable[[int], None]) -> Generator[Event, object, None]:
        """Run Algorithm 1, then call `on_finish`. A restored client continues in the phase it was in."""
        try:
            while self.state.round <= self.context.rounds:
                yield from self.phases[self.state.phase]()
        except Interrupt:
            return  # the client has crashed or left
        except (Exception, SystemExit) as error:
            note_client_round(error, self.id, self.state.round)
            raise
        self.state.phase = Phase.FINISHED
        on_finish(self.id)

    def train(self) -> Generator[Event, object, None]:
        """Wait for the simulated duration of the local training, then read the result."""
        state, context = self.state, self.context
        yield self.pending_event or self._start_training()
        self.pending_event = None
        result = state.job.result
        self.report_update()
        state.trained = TrainedModel(context.kernel.now, context.trained_model(result.trained))
        state.is_trained_new = True
        [loss], [num_steps] = result.trained.losses, result.trained.num_steps
        context.observer.training_finished(self.id, state.round, loss, num_steps)
        context.on_training()
        if not context.exchanges:
            state.phase = Phase.GATHERING  # no neighbour is pending
            return
        self.mailbox.start_round(state.round)
        for adversary in context.observing_adversaries:
            if self.id in adversary.observed_clients:
                adversary.on_payload(self.id, state.round, result.payload)
        state.phase = Phase.SENDING

    def send(self) -> Generator[Event, object, None]:
        """Send the payload to every neighbour. For a Byzantine client, its adversary sends the messages."""
        state, payload = self.state, self.state.job.result.payload
        if self.adversary is None:
            self.context.network.send(self.id, state.round, payload, self.neighbours)
        else:
            if self.pending_event or not self.adversary.is_ready(self):
                yield self.pending_event or self._wait_for_observations(self.adversary)
            self.pending_event = None
            self.adversary.send(self, payload)
        state.phase = Phase.GATHERING

    def gather(self) -> Generator[Event, object, None]:
        """Wait for the neighbours' messages, then finish the round and submit the next job."""
        state, context, round_ = self.state, self.context, self.state.round
        if self.pending_event or not self.mailbox.is_ready:
            yield self.pending_event or self._wait(context.wait.timeout_s)
        self.pending_event = None
        messages = self.mailbox.take(round_, context.staleness.max_age)
        used = [UsedMessage(m.number, m.broadcast.sender, self.id, m.broadcast.round) for m in messages]
        context.observer.round_finished(self.id, round_, used)
        received = [self._received(message.broadcast) for message in messages]  # before the round changes
        state.unreported = used
        state.num_rounds += 1
        state.last_round, state.updated_s, state.is_updated_new = round_, context.kernel.now, True
        state.round, state.phase = round_ + 1, Phase.TRAINING
        self._submit(received, self._poisons())
        # The next training starts in the same event; a due evaluation follows at the end of this instant.
        context.on_round(self)  # the job just submitted computes the model of this round

    def report_update(self) -> None:
        """Report the update of the last finished round to the observer, once.

        Called at the end of the next training, at an evaluation, and when the client stops. These are
        simulated times, so records do not depend on when an executor computes a job.
        """
        state, messages = self.state, self.state.unreported
        if messages is not None:
            state.unreported = None
            self.context.observer.update_reported(self.id, state.last_round, messages, state.job.updated)

    def receive(self, message: Message) -> None:
        """Put an arriving message into the mailbox. The adversary of a Byzantine client observes it."""
        self.mailbox.put(message)
        if self.adversary is not None:
            self.adversary.on_message(self, message)

    def deadline_s(self, round_: int) -> float | None:
        """Return the time when the client will stop waiting in this round, or None if it is unknown."""
        state, timeout_s = self.state, self.context.wait.timeout_s
        if timeout_s is None or state.round != round_ or state.until_s is None:
            return None
        if state.phase is Phase.TRAINING:
            return state.until_s + timeout_s
        return state.until_s if state.phase is Phase.GATHERING else None

    def set_neighbours(self, neighbours: Sequence[int]) -> None:
        """Change the neighbourhood. The client no longer waits for former neighbours."""
        self.neighbours = neighbours
        self.mailbox.set_neighbours(neighbours, self._num_required)
        if self.mailbox.is_ready:
            self._on_ready()

    def stop(self) -> None:
        """Discard the state of the current round. The last update and the mailbox are kept."""
        self.report_update()
        state = self.state
        state.job = FinishedJob(state.job.updated)
        state.phase, state.until_s = Phase.TRAINING, None
        self.pending_event = None
        self.timer.cancel()
        if self.adversary is not None:
            self.adversary.on_stop(self.id)

    def furthest_round(self, clients_down: Collection[int]) -> int:
        """Return the latest round among the client and its running neighbours, to catch up with them."""
        up = [self.context.clients[n] for n in self.neighbours if n not in clients_down]
        return max(client.state.round for client in (self, *up))

    def start_afresh(self, learning: State) -> None:
        """Replace the state of a stopped client and discard its unread messages."""
        state, now_s = self.state, self.context.kernel.now
        state.job, state.updated_s = FinishedJob(Updated(learning)), now_s
        state.trained = TrainedModel(now_s, learning.w)
        state.is_trained_new = state.is_updated_new = True
        self.mailbox.clear(RESTARTED)

    def restore_waiting(self) -> None:
        """Wait again for the event that the client waited for when the checkpoint was written."""
        self.pending_event = Event(self.context.kernel)
        if self.state.phase is Phase.TRAINING and not self.state.job.trains:
            self._submit(None, self.state.poisoned)

    def stop_waiting(self) -> None:
        """End the current wait, if any, after the messages that are already queued for this instant."""
        self.timer.cancel()
        if self.pending_event is not None and not self.pending_event.triggered:
            self.context.kernel.trigger_at(self.pending_event, self.context.kernel.now)

    @property
    def _num_required(self) -> int:
        """The number of neighbours that the client waits for."""
        context = self.context
        return context.wait.num_needed(len(self.neighbours)) if context.exchanges else 0

    def _on_ready(self) -> None:
        if self.state.phase is Phase.GATHERING:
            self.stop_waiting()

    def _start_training(self) -> Event:
        """Return an event that fires after the simulated duration of the local training."""
        state, context = self.state, self.context
        if not state.job.trains:  # at the start, and after a crash
            self._submit(None, self._poisons())
        duration_s = context.training_times.duration_s(self.id, state.round)
        state.until_s = context.kernel.now + duration_s
        context.observer.training_started(self.id, state.round, duration_s)
        self.pending_event = context.kernel.trigger_at(Event(context.kernel), state.until_s)
        return self.pending_event

    def _submit(self, messages: Sequence[Received] | None, poisoned: bool) -> None:
        """Submit the job of the current round."""
        state, rounds = self.state, self.context.rounds
        state.poisoned = poisoned
        state.job = self.context.executor.submit(
            RoundJob(
                self.id,
                state.round,
                state.job,
                messages,
                degree=len(self.neighbours),
                poisoned=poisoned,
                trains=state.round <= rounds,
            )
        )

    def _poisons(self) -> bool:
        """Return whether the training that starts now uses poisoned data."""
        return self.adversary is not None and self.adversary.poisons(self)

    def _wait_for_observations(self, adversary: Adversary) -> Event:
        """Return an event that fires when the adversary has enough observations, or after `patience_s`."""
        adversary.waiting[self.id] = None
        return self._wait(adversary.plan.patience_s)

    def _wait(self, timeout_s: float | None) -> Event:
        self.pending_event = Event(self.context.kernel)
        self.state.until_s = None if timeout_s is None else self.context.kernel.now + timeout_s
        if self.state.until_s is not None:
            self.timer.set(self.state.until_s)
        return self.pending_event

    def _received(self, broadcast: Broadcast) -> Received:
        """Return a message as input of a method, with its weight and its sender's degree in this round."""
        age = self.state.round - broadcast.round
        weight = 1.0 if age == 0 else self.context.staleness.weight(age)
        degree = len(self.context.clients[broadcast.sender].neighbours)
        return Received(broadcast.payload, weight, degree)
