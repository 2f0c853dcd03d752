"""Realistic bugs of the simulator, at least one per invariant, each with a scenario in which it shows.

A bug is a function that changes the simulator through a `MonkeyPatch`. It never changes a record afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rdpfl_sim.aggregators import Aggregation
from rdpfl_sim.learning import training
from rdpfl_sim.methods import rdpfl
from rdpfl_sim.randomness import Streams
from rdpfl_sim.records.summary import OUTCOMES
from rdpfl_sim.simulation import simulation
from rdpfl_sim.simulation.deployment import Deployment
from rdpfl_sim.simulation.evaluation import Candidate, Evaluations
from rdpfl_sim.simulation.models import BestModels
from rdpfl_sim.simulation.recorder import Fields, Recorder, Sink
from rdpfl_sim.simulation.simulation import Simulation
from rdpfl_sim.simulation.telemetry import Telemetry
from rdpfl_sim.vectors import row_norms
from rdpfl_sim.world.client import Client, Phase
from rdpfl_sim.world.faults.fault import Change, Clients, End
from rdpfl_sim.world.mailbox import MAILBOX_FULL, TOO_OLD, Mailbox, SenderQueue
from rdpfl_sim.world.network import obstacles
from rdpfl_sim.world.network.message import Message
from rdpfl_sim.world.network.network import LOSS, Network
from rdpfl_sim.world.observer import UsedMessage
from rdpfl_sim.world.world import World

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class PlantedBug:
    """A bug, the sections of a scenario in which it shows, and the invariant that must report it."""

    plant: Plant
    scenario: dict[str, Any]
    invariant: str
    message: str
    """A pattern of the message."""


BUGS: dict[str, PlantedBug] = {}
"""The bugs by the names of their functions."""

LATE = {"network": {"latency": {"name": "exponential", "mean_s": 0.5}}}
PATIENT = {"timing": {"wait": {"name": "deadline", "seconds": 1.0}}}
ASYNCHRONOUS = {
    **LATE,
    "timing": {"wait": "none", "staleness": {"name": "keep", "max_age": 2}, "compute": "lognormal"},
}
CRASH = {**PATIENT, "faults": [{"name": "crash", "clients": [1], "at_s": 1.5}]}
RECOVERY = {**PATIENT, "faults": [{"name": "crash", "clients": [1], "at_s": 0.5, "recover_after_s": 2.0}]}
PARTITION = {
    **PATIENT,
    "faults": [{"name": "partition", "sides": [[0, 1, 2]], "from_s": 0.5, "until_s": 1.5}],
}


def violates(invariant: str, message: str, **scenario: Any) -> Callable[[Plant], Plant]:
    """Register a bug that violates an invariant."""

    def register(plant: Plant) -> Plant:
        BUGS[plant.__name__] = PlantedBug(plant, scenario, invariant, message)
        return plant

    return register


@violates("form", r"^invalid record round_finished: it has no max_age$", **ASYNCHRONOUS)
def a_field_without_a_value_is_left_out(patch: pytest.MonkeyPatch) -> None:
    original = Recorder._round

    def record(self: Recorder, name: str, client: int, round_: int, fields: Fields) -> None:
        present = {key: value for key, value in fields.items() if value is not None}
        original(self, name, client, round_, present)

    patch.setattr(Recorder, "_round", record)


@violates(
    "time",
    r"^message_lost, message \d+ is at [\d.]+ s, the previous record is at [\d.]+ s$",
    **LATE,
    **CRASH,
)
def a_message_is_recorded_as_lost_when_it_was_sent(patch: pytest.MonkeyPatch) -> None:
    original = Recorder.message_lost

    def message_lost(self: Recorder, message: Message, reason: str) -> None:
        early = copy(self)
        early.kernel = SimpleNamespace(now=message.sent_at_s)
        original(early, message, reason)

    patch.setattr(Recorder, "message_lost", message_lost)


@violates("complete", r"^the last record is not run_finished, but final_model$")
def the_last_record_is_not_written(patch: pytest.MonkeyPatch) -> None:
    def record_end(self: Simulation) -> None:
        for client in self.clients:
            self.recorder.model(client.id, client.state.learning.w[0])

    patch.setattr(Simulation, "_record_end", record_end)


@violates(
    "scenario",
    r"^the Byzantine clients are \[\d, \d\], in topology\.json \[\d, \d\]$",
    topology={"name": "erdos_renyi", "p": 0.6},
    adversary={"attack": "sign_flip", "fraction": 0.34},
)
def topology_json_is_from_another_draw(patch: pytest.MonkeyPatch) -> None:
    original: Any = Deployment.topology.fget

    def topology(self: Deployment) -> Any:
        other = copy(self)
        other.streams = Streams(self.scenario.seed + 1)
        other._build_graph()
        return original(other)

    patch.setattr(Deployment, "topology", property(topology))


@violates("digest", r"^the records have the digest \w{16}\.\.\., summary\.json has \w{16}\.\.\.$", **RECOVERY)
def the_digest_omits_faults(patch: pytest.MonkeyPatch) -> None:
    original = Sink.info

    def info(self: Sink, line: bytes) -> None:
        if line.startswith(b'{"event":"fault"'):
            self.write_undigested(line)
        else:
            original(self, line)

    patch.setattr(Sink, "info", info)


@violates("conservation", r"^the messages do not add up: delivered \d+, .*left_over 0$", **ASYNCHRONOUS)
def unread_messages_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    _remove_assertions_about_counts(patch)

    def unread(self: Mailbox) -> Iterator[Message]:
        return iter(())

    patch.setattr(Mailbox, "unread", unread)


@violates("counts", r"^messages\.lost is \d+, according to the records 0$", **PARTITION)
def a_message_that_an_obstacle_blocks_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    original = Network.lose

    def lose(self: Network, message: Message, reason: str) -> None:
        if reason == LOSS:
            original(self, message, reason)
        else:
            self.num_lost += 1

    patch.setattr(Network, "lose", lose)


@violates("summary", r"^telemetry\.age\.0 is \d+, should be \d+$", **LATE)
def ages_are_counted_twice(patch: pytest.MonkeyPatch) -> None:
    original = Telemetry.round_finished

    def round_finished(
        self: Telemetry, client: int, messages: Sequence[UsedMessage], ages: Sequence[int]
    ) -> None:
        original(self, client, messages, ages)
        if client not in self.byzantine:
            self.ages.update(ages)

    patch.setattr(Telemetry, "round_finished", round_finished)


@violates("rounds", r"^client 1 is in round 2, not 3$", **RECOVERY)
def a_client_that_catches_up_skips_a_round(patch: pytest.MonkeyPatch) -> None:
    original = Client.furthest_round

    def furthest_round(self: Client, clients_down: Collection[int]) -> int:
        return original(self, clients_down) + 1

    patch.setattr(Client, "furthest_round", furthest_round)


@violates("faults", r"^client 1 is down: \w+ in round \d$", **CRASH)
def a_crashed_client_continues(patch: pytest.MonkeyPatch) -> None:
    original = World.stop

    def stop(self: World, clients: Clients, for_good: bool) -> None:
        for client in clients:
            self.processes.pop(client, None)  # so that it is not interrupted
        original(self, clients, for_good)

    patch.setattr(World, "stop", stop)


@violates("faults", r"^the condition 'down' of client 1 ends, but has not started$", **RECOVERY)
def a_recovery_is_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    original = Recorder.changed

    def changed(self: Recorder, fault: int, change: Change) -> None:
        original(self, fault, change)
        if isinstance(change, End):
            original(self, fault, change)

    patch.setattr(Recorder, "changed", changed)


@violates("outcomes", r"^message \d+ is (used|stale), but is not in a mailbox$", **ASYNCHRONOUS)
def a_mailbox_returns_a_message_twice(patch: pytest.MonkeyPatch) -> None:
    _remove_assertions_about_counts(patch)
    original = SenderQueue.take

    def take(self: SenderQueue, round_: int) -> Message:
        message = self.unread[round_]
        original(self, round_)
        self.unread[round_] = message
        return message

    patch.setattr(SenderQueue, "take", take)


@violates(
    "causality",
    r"^message \d+ was sent at [\d.]+ s and arrives at [\d.]+ s: its delay is not [\d.]+ s$",
    network={"latency": "exponential", "duplication": 0.5},
)
def a_copy_has_the_delay_of_its_original(patch: pytest.MonkeyPatch) -> None:
    original = Recorder._message
    first: dict[tuple[int, int, float], Fields] = {}

    def record(self: Recorder, name: str, message: Message | UsedMessage, fields: Fields) -> None:
        if name == "message_delivered":
            assert isinstance(message, Message)
            fields = first.setdefault((message.sender, message.recipient, message.sent_at_s), fields)
        original(self, name, message, fields)

    patch.setattr(Recorder, "_message", record)


@violates("links", r"^message \d+ from [345] to [012] is delivered, despite: partition$", **PARTITION)
def a_partition_blocks_one_direction_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(obstacles, "permutations", combinations)


@violates("stamps", r"^honest client \d stamped a message with round 2 in round 1$", **PATIENT)
def a_client_states_the_next_round(patch: pytest.MonkeyPatch) -> None:
    original = Network.send

    def send(self: Network, sender: int, round_: int, *message: Any, stamp: int | None = None) -> None:
        original(self, sender, round_, *message, stamp=round_ + 1 if stamp is None else stamp)

    patch.setattr(Network, "send", send)


@violates(
    "reasons",
    r"^the reason for message \d+ is 'too old', but must be: mailbox full or newer message chosen$",
    timing={"wait": "none", "staleness": "keep", "compute": "lognormal", "mailbox_per_sender": 1},
)
def a_full_mailbox_drops_messages_as_too_old(patch: pytest.MonkeyPatch) -> None:
    original = Mailbox._discard

    def discard(self: Mailbox, queue: SenderQueue, round_: int, reason: str) -> None:
        original(self, queue, round_, TOO_OLD if reason == MAILBOX_FULL else reason)

    patch.setattr(Mailbox, "_discard", discard)


@violates(
    "reasons",
    r"^the reason for message \d+ is 'newer message chosen', but none is possible$",
    **ASYNCHRONOUS,
    rounds=8,
    faults=[{"name": "crash", "clients": [1, 2], "at_s": 2.0, "recover_after_s": 1.0, "state": "fresh"}],
)
def a_client_that_restarts_with_a_new_model_keeps_its_messages(patch: pytest.MonkeyPatch) -> None:
    def clear(self: Mailbox, reason: str) -> None:
        pass

    patch.setattr(Mailbox, "clear", clear)


@violates("use", r"^round \d of client \d uses stamp 1 from client \d instead of 2$", **ASYNCHRONOUS)
def a_round_uses_the_oldest_message(patch: pytest.MonkeyPatch) -> None:
    original = Mailbox._choose

    def choose(self: Mailbox, queue: SenderQueue, round_: int, max_age: int) -> int | None:
        usable = [stamp for stamp in queue.unread if round_ - max_age <= stamp <= round_]
        return min(usable) if usable else original(self, queue, round_, max_age)

    patch.setattr(Mailbox, "_choose", choose)


@violates(
    "use",
    r"^round \d of client \d uses stamp \d from client \d after stamp \d$",
    rounds=8,
    network={"latency": {"name": "exponential", "mean_s": 1.0}, "duplication": 0.5},
    timing={"wait": "none", "compute": "lognormal"},
)
def a_copy_of_a_used_message_is_used(patch: pytest.MonkeyPatch) -> None:
    original = SenderQueue.take

    def take(self: SenderQueue, round_: int) -> Message:
        last_used = self.last_used
        message = original(self, round_)
        self.last_used = last_used
        return message

    patch.setattr(SenderQueue, "take", take)


@violates(
    "ages",
    r"^message \d+ with stamp \d and recorded age 1 is used in round \d of client \d; the largest age is 0$",
    **LATE,
    timing={"wait": {"name": "deadline", "seconds": 0.5}, "staleness": "drop"},
)
def a_message_that_is_one_round_too_old_is_used(patch: pytest.MonkeyPatch) -> None:
    original = Mailbox.take

    def take(self: Mailbox, round_: int, max_age: int) -> list[Message]:
        return original(self, round_, max_age + 1)

    patch.setattr(Mailbox, "take", take)


@violates("waiting", r"^client \d ends round 1 with \d of \d required messages$", **LATE)
def a_round_ends_with_one_sender_too_few(patch: pytest.MonkeyPatch) -> None:
    def is_ready(self: Mailbox) -> bool:
        return len(self.queues) - len(self.pending) - self.num_rejected >= self.num_required - 1

    patch.setattr(Mailbox, "is_ready", property(is_ready))


@violates(
    "waiting",
    r"^client \d waits from [\d.]+ s to [\d.]+ s in round 1, longer than its timeout of 0\.5 s$",
    **LATE,
    timing={"wait": {"name": "deadline", "seconds": 0.5}},
)
def a_timeout_starts_again_with_every_message(patch: pytest.MonkeyPatch) -> None:
    original = Client.receive

    def receive(self: Client, message: Message) -> None:
        original(self, message)
        timeout_s = self.context.wait.timeout_s
        if self.state.phase is Phase.GATHERING and timeout_s is not None and not self.mailbox.is_ready:
            self.timer.set(self.context.kernel.now + timeout_s)

    patch.setattr(Client, "receive", receive)


@violates(
    "weights", r"^message \d+ has weight 1\.0, the sum in round 1 of client \d is 2\.0$", topology="ring"
)
def weights_are_relative_to_their_mean(patch: pytest.MonkeyPatch) -> None:
    original = Aggregation.shares

    def shares(self: Aggregation, messages: Tensor, own: Tensor, clients: Any = ()) -> Tensor | None:
        found = original(self, messages, own, clients)
        return None if found is None else found / found.mean(dim=1, keepdim=True)

    patch.setattr(Aggregation, "shares", shares)


@violates("estimates", r"^the estimate of round 2 of client \d does not follow its end, or is too late$")
def an_update_is_reported_twice(patch: pytest.MonkeyPatch) -> None:
    original = Client.report_update

    def report_update(self: Client) -> None:
        unreported = self.state.unreported
        original(self)
        self.state.unreported = unreported

    patch.setattr(Client, "report_update", report_update)


@violates(
    "lemma 3",
    r"^\|d\| = [\d.]+ in round 1 of client \d, G_d = 0\.01$",
    method={"name": "rdpfl", "max_norm": 0.01},
)
def the_bound_on_d_is_not_applied(patch: pytest.MonkeyPatch) -> None:
    def clip_rows(v: Tensor, limits: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return v, torch.zeros_like(lengths, dtype=torch.bool)

    def norm_without_assertion(self: rdpfl.Rdpfl, d: Tensor) -> Tensor:
        return row_norms(d)

    patch.setattr(rdpfl, "clip_rows", clip_rows)
    patch.setattr(rdpfl.Rdpfl, "_checked_norm", norm_without_assertion)


@violates("evaluations", r"^client 1 was not evaluated after round 2$", **RECOVERY)
def a_client_that_has_skipped_rounds_is_not_evaluated(patch: pytest.MonkeyPatch) -> None:
    original = Evaluations.after_round

    def after_round(self: Evaluations, client: Client) -> None:
        if client.state.num_rounds == client.state.last_round:
            original(self, client)

    patch.setattr(Evaluations, "after_round", after_round)


@violates("evaluations", r"^the trained model of client \d is from [\d.]+ s, not [\d.]+ s$", **LATE)
def trained_models_have_the_time_of_the_exchange(patch: pytest.MonkeyPatch) -> None:
    def model(self: Candidate, moment: str) -> tuple[float, Tensor]:
        return self.updated_s, self.trained.w[0] if moment == "trained" else self.w

    patch.setattr(Candidate, "model", model)


@violates(
    "evaluations",
    r"^the last trained model of client 1 was not evaluated$",
    **{**CRASH, **LATE, "faults": [{"name": "crash", "clients": [1], "at_s": 1.01}]},
)
def a_client_that_stops_after_its_training_keeps_its_last_evaluation(patch: pytest.MonkeyPatch) -> None:
    original = Evaluations.evaluate_changed

    def evaluate_changed(self: Evaluations, clients: Sequence[Client]) -> None:
        original(self, [client for client in clients if client.state.is_updated_new])

    patch.setattr(Evaluations, "evaluate_changed", evaluate_changed)


@violates(
    "models",
    r"^the model of client 0 has the hash [0-9a-f]{32}, the records have [0-9a-f]{32}$",
    output={"models": "final"},
    training={"start": "different"},
)
def saved_models_are_in_another_order(patch: pytest.MonkeyPatch) -> None:
    original = simulation.saved_models

    def saved_models(clients: Sequence[Client], best: BestModels | None, moment: str) -> list[Tensor]:
        return original(clients, best, moment)[::-1]

    patch.setattr(simulation, "saved_models", saved_models)


@violates(
    "replay",
    r'^differs in loss\n  before  \{"event":"training_finished",.*"client":\d,"round":1,"loss":',
    clients={"count": 3},
    rounds=2,
    training={"batch_size": 8},
    execution={"executor": "inline"},
)
def batches_are_drawn_from_an_unseeded_generator(patch: pytest.MonkeyPatch) -> None:
    original = training.batches

    def batches(num_samples: int, batch_size: int, num_steps: int, seed: int) -> Iterator[Tensor]:
        return original(num_samples, batch_size, num_steps, torch.Generator().seed())

    patch.setattr(training, "batches", batches)


def _remove_assertions_about_counts(patch: pytest.MonkeyPatch) -> None:
    """Count messages without the simulator's own assertions, so that the run reaches its end."""

    def message_counts(
        sent: int, delivered: int, lost: int, in_flight: int, outcomes: Mapping[str, int], left_over: int
    ) -> dict[str, int]:
        counts = {"sent": sent, "delivered": delivered, "lost": lost, "in_flight": in_flight}
        return counts | {outcome: outcomes[outcome] for outcome in OUTCOMES} | {"left_over": left_over}

    patch.setattr(simulation, "message_counts", message_counts)
