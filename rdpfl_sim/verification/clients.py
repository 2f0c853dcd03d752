"""What the records say of the clients: who is there, who is whose neighbour, who lives which round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from rdpfl_sim.records.fault_timeline import CHANGES, ENDS, REWIRE, FaultTimeline
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.verification.check import Check, Needs, Record
from rdpfl_sim.world.faults.fault import Condition

Neighbours = dict[int, None]
"""A set of clients, in the order of their ids."""

UNMATCHED = {
    Condition.CRASHED: "client {0} recovers, but has not crashed",
    Condition.ABSENT: "client {0} joins, but was not absent",
    Condition.SLOW: "client {0} is no longer slow, but was not slow",
    Condition.PARTITIONED: "a partition heals that did not exist",
    Condition.LINK_DOWN: "the link from {0[0]} to {0[1]} comes up, but is not down",
}
"""What is wrong if a condition ends that has not started."""


class Doing(Enum):
    """What a client is doing."""

    NOTHING = "is between two rounds"
    TRAINING = "is training"
    GATHERING = "is waiting for messages"


@dataclass
class Life:
    """A client: its round, what it is doing, and the time since when, or until when if it trains."""

    round: int = 1
    doing: Doing = Doing.NOTHING
    time_s: float = 0.0
    num_rounds: int = 0
    last_round: int = 0
    """The last round that it has finished, or 0."""
    is_untested: bool = True
    """Whether its model has changed since its last evaluation."""


class Clients:
    """Follows every client through its rounds, crashes and recoveries."""

    def __init__(self, num_clients: int, edges: Iterable[Sequence[int]], num_rounds: int) -> None:
        self.rounds = Check(
            "rounds",
            "Every client trains, gathers and finishes its rounds one after the other, without a gap.",
            Needs.RECORDS,
        )
        self.faults = Check(
            "faults", "Who is down does nothing; only what went down comes up again.", Needs.RECORDS
        )
        self.checks = [self.rounds, self.faults]
        self.last_round = num_rounds
        self.lives = [Life() for _ in range(num_clients)]
        self.graph = _around(num_clients, edges)
        self.neighbours = self.graph
        self.timeline = FaultTimeline()

    def training_started(self, record: Record, line: int) -> None:
        """A round begins, at the moment at which the one before has ended or the client has come up."""
        life = self._acting(record, line, Doing.NOTHING)
        if record["time_s"] != life.time_s:
            self.rounds.violated(line, f"client {record['client']} was idle since {life.time_s} s")
        life.doing, life.time_s = Doing.TRAINING, record["time_s"] + record["duration_s"]

    def training_finished(self, record: Record, line: int) -> None:
        """The training ends when it was said to end."""
        life = self._acting(record, line, Doing.TRAINING)
        if record["time_s"] != life.time_s:
            self.rounds.violated(line, f"the training of client {record['client']} ends at {life.time_s} s")
        life.doing, life.time_s = Doing.GATHERING, record["time_s"]

    def round_finished(self, record: Record, line: int) -> None:
        """A round ends; the next one follows."""
        life = self._acting(record, line, Doing.GATHERING)
        life.doing, life.time_s = Doing.NOTHING, record["time_s"]
        life.round += 1
        life.num_rounds += 1
        life.last_round, life.is_untested = record["round"], True

    def fault(self, record: Record, line: int) -> None:
        """Apply a fault to the clients and their neighbours."""
        self.faults.num_items += 1
        change = record["change"]
        if change not in CHANGES:
            self.faults.violated(line, f"unknown fault change {change!r}")
            return
        effect = self.timeline.apply(record)
        for subject in effect.unmatched:
            self.faults.violated(line, UNMATCHED[ENDS[change]].format(subject))
        if change == REWIRE:
            self.graph = _around(len(self.lives), record["links"])
        if change in (REWIRE, "absent", "join", "leave"):
            away = self.timeline.absent | self.timeline.departed
            self.neighbours = [
                {other: None for other in around if other not in away} for around in self.graph
            ]
        for client in effect.stopped:
            self.lives[client].doing = Doing.NOTHING
        self._resume(effect.resumed, record)

    def run_finished(self, record: Record, line: int) -> None:
        """A run is finished when every client is, or has stopped for good."""
        gone = self.timeline.stopped_for_good
        late = [
            client
            for client, life in enumerate(self.lives)
            if client not in gone and life.round <= self.last_round
        ]
        if record["status"] == RunStatus.FINISHED and late:
            self.rounds.violated(line, f"client {late[0]} is in round {self.lives[late[0]].round} at the end")

    def _acting(self, record: Record, line: int, doing: Doing) -> Life:
        """The client that a record is about; it must be up, and in the right phase of the right round."""
        self.rounds.num_items += 1
        client, round_ = record["client"], record["round"]
        life = self.lives[client]
        if client in self.timeline.stopped:
            self.faults.violated(line, f"client {client} is down")
        if life.doing is not doing:
            self.rounds.violated(line, f"client {client} {life.doing.value}, so it cannot do this")
        elif life.round != round_:
            self.rounds.violated(line, f"client {client} is in round {life.round}, not in {round_}")
        elif round_ > self.last_round:
            self.rounds.violated(line, f"client {client} lives round {round_} of {self.last_round}")
        life.round = round_
        return life

    def _resume(self, clients: Sequence[int], record: Record) -> None:
        """Continue at the client's own round, or at the one of its furthest running neighbour."""
        excluded = self.timeline.stopped.union(clients)
        furthest = {client: self._furthest_round(client, excluded) for client in clients}
        for client in clients:
            life = self.lives[client]
            life.time_s = record["time_s"]
            if life.round <= self.last_round:
                life.is_untested |= record.get("fresh", False)
                if record.get("catch_up", True):
                    life.round = furthest[client]

    def _furthest_round(self, client: int, excluded: Set[int]) -> int:
        around = (other for other in self.neighbours[client] if other not in excluded)
        return max(self.lives[other].round for other in (client, *around))


def _around(num_clients: int, edges: Iterable[Sequence[int]]) -> list[Neighbours]:
    found: list[set[int]] = [set() for _ in range(num_clients)]
    for i, j in edges:
        found[i].add(j)
        found[j].add(i)
    return [dict.fromkeys(sorted(around)) for around in found]
