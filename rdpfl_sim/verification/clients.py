"""Checks of the records of clients: rounds, faults and neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.record_types import (
    FaultRecord,
    RoundFinished,
    RoundRecord,
    RunFinished,
    TrainingFinished,
    TrainingStarted,
)
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.verification.check import Checks
from rdpfl_sim.world.faults.fault import Condition
from rdpfl_sim.world.faults.timeline import FaultTimeline, Subject


class ClientPhase(Enum):
    """The phase of a round; its value completes a sentence about the client."""

    IDLE = "is between two rounds"
    TRAINING = "is training"
    GATHERING = "is waiting for messages"


@dataclass
class TrackedClient:
    """The state of a client according to its records so far."""

    round: int = 1
    phase: ClientPhase = ClientPhase.IDLE
    time_s: float = 0.0
    """The start of the phase; for training, its end."""
    num_rounds: int = 0
    last_round: int = 0
    """The last finished round, or 0."""
    trained_s: float = 0.0
    """The end of the last training, or the time of a fresh start."""
    updated_s: float = 0.0
    """The end of the last round, or the time of a fresh start."""
    untested: set[str] = field(default_factory=lambda: {"trained", "updated"})
    """The models that have changed since the last evaluation."""


class ClientChecks:
    """Follows every client through its rounds, crashes and recoveries, and checks their order."""

    def __init__(
        self, checks: Checks, num_clients: int, edges: Iterable[Sequence[int]], num_rounds: int
    ) -> None:
        self.rounds = checks["rounds"]
        self.faults = checks["faults"]
        self.last_round = num_rounds
        self.states = [TrackedClient() for _ in range(num_clients)]
        self.graph = _neighbours_of(num_clients, edges)
        self.neighbours = self.graph
        self.timeline = FaultTimeline()
        self.stopped_at_s: dict[int, float] = {}
        """The times at which clients last stopped."""
        self.restarted_at_s: dict[int, float] = {}
        """The times at which clients last recovered with a new model and an empty mailbox."""

    def training_started(self, record: TrainingStarted, line: int) -> None:
        """Check that a round starts when the previous one ended or when the client resumed."""
        state = self._check_phase(record, line, ClientPhase.IDLE)
        if record["time_s"] != state.time_s:
            self.rounds.violated(line, f"client {record['client']} has been idle since {state.time_s} s")
        state.phase, state.time_s = ClientPhase.TRAINING, record["time_s"] + record["duration_s"]

    def training_finished(self, record: TrainingFinished, line: int) -> None:
        """Check that the training took as long as announced in its start record."""
        state = self._check_phase(record, line, ClientPhase.TRAINING)
        if record["time_s"] != state.time_s:
            self.rounds.violated(
                line, f"the training of client {record['client']} should end at {state.time_s} s"
            )
        state.phase, state.time_s = ClientPhase.GATHERING, record["time_s"]
        state.trained_s = record["time_s"]
        state.untested.add("trained")

    def round_finished(self, record: RoundFinished, line: int) -> None:
        """Check that the client was waiting for messages, and count the round."""
        state = self._check_phase(record, line, ClientPhase.GATHERING)
        state.phase, state.time_s = ClientPhase.IDLE, record["time_s"]
        state.round += 1
        state.num_rounds += 1
        state.last_round, state.updated_s = record["round"], record["time_s"]
        state.untested.add("updated")

    def fault(self, record: FaultRecord, line: int) -> None:
        """Apply a fault to the clients and their neighbours."""
        self.faults.num_items += 1
        try:
            effect = self.timeline.apply(record)
        except RunError as error:
            self.faults.violated(line, str(error))
            return
        for subject in effect.unmatched:
            assert effect.condition is not None
            self.faults.violated(line, _unmatched(effect.condition, subject))
        if effect.condition is None:
            self.graph = _neighbours_of(len(self.states), record["links"])
        if effect.condition is None or effect.condition.withdraws:
            away = self.timeline.withdrawn
            self.neighbours = [around - away for around in self.graph]
        for client in effect.stopped:
            self.states[client].phase = ClientPhase.IDLE
            self.stopped_at_s[client] = record["time_s"]
        self._resume(effect.resumed, record)

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Check that every client of a finished run has finished its rounds or has stopped permanently."""
        gone = self.timeline.stopped_for_good
        late = [
            client
            for client, state in enumerate(self.states)
            if client not in gone and state.round <= self.last_round
        ]
        if record["status"] == RunStatus.FINISHED and late:
            self.rounds.violated(
                line, f"client {late[0]} is still in round {self.states[late[0]].round} at the end of the run"
            )

    def _check_phase(self, record: RoundRecord, line: int, phase: ClientPhase) -> TrackedClient:
        """Check that the client of a record is in this phase and round, and return its state."""
        self.rounds.num_items += 1
        client, round_ = record["client"], record["round"]
        state = self.states[client]
        if client in self.timeline.stopped:
            self.faults.violated(line, f"client {client} is down: {record['event']} in round {round_}")
        if state.phase is not phase:
            what = f"unexpected record {record['event']} of round {round_}"
            self.rounds.violated(line, f"{what}: client {client} {state.phase.value}")
        elif state.round != round_:
            self.rounds.violated(line, f"client {client} is in round {state.round}, not {round_}")
        elif round_ > self.last_round:
            self.rounds.violated(line, f"client {client} is in round {round_} of {self.last_round}")
        state.round = round_
        return state

    def _resume(self, clients: Sequence[int], record: FaultRecord) -> None:
        """Continue at the client's own round, or at the round of its most advanced running neighbour."""
        excluded = self.timeline.stopped.union(clients)
        furthest = {client: self._furthest_round(client, excluded) for client in clients}
        for client in clients:
            state = self.states[client]
            state.time_s = record["time_s"]
            if state.round <= self.last_round:
                if record.get("fresh"):
                    state.trained_s = state.updated_s = record["time_s"]
                    state.untested |= {"trained", "updated"}
                    self.restarted_at_s[client] = record["time_s"]
                if record.get("catch_up", True):
                    state.round = furthest[client]

    def _furthest_round(self, client: int, excluded: Set[int]) -> int:
        around = (other for other in self.neighbours[client] if other not in excluded)
        return max(self.states[other].round for other in (client, *around))


def _unmatched(condition: Condition, subject: Subject) -> str:
    """Describe the end of a condition that has not started."""
    if isinstance(subject, int):
        name = f"client {subject}"
    elif condition.subjects == "links":
        name = f"the link from {subject[0]} to {subject[1]}"
    else:
        name = "the network"
    return f"the condition {condition.label!r} of {name} ends, but has not started"


def _neighbours_of(num_clients: int, edges: Iterable[Sequence[int]]) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(num_clients)]
    for i, j in edges:
        found[i].add(j)
        found[j].add(i)
    return found
