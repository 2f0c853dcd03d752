"""Checks of rounds: waiting time, messages used, estimates, weights and evaluations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from rdpfl_sim.records.metrics import MetricsRow, selected_moments
from rdpfl_sim.records.record_types import (
    Consensus,
    EstimateRecord,
    Evaluated,
    MessageRecord,
    MessageStatsRecord,
    MessageUsed,
    RoundFinished,
    RunFinished,
    TrainingFinished,
    TrainingStarted,
    ValidationScores,
)
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Checks, difference
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.messages import MessageChecks
from rdpfl_sim.verification.summary import DerivedTelemetry

ROUNDING = 1e-5
"""Relative tolerance for float32 rounding, in norms and in sums of weights."""


@dataclass
class FinishedRound:
    """A finished round with the records that follow it."""

    record: RoundFinished
    line: int
    unused: set[int]
    """The senders in the mailbox whose messages the round has not used yet."""
    used: list[MessageUsed] = field(default_factory=list)
    estimate: EstimateRecord | None = None
    stats: list[MessageStatsRecord] = field(default_factory=list)
    weight: float = 0.0
    """The sum of the weights in `stats`."""

    def __str__(self) -> str:
        return f"round {self.record['round']} of client {self.record['client']}"


class RoundChecks:
    """Checks every round, with its estimate and the statistics of its messages.

    It processes each record before `ClientChecks` and `MessageChecks`. A round is closed, and added to the
    telemetry, at the next record that needs its model.
    """

    def __init__(
        self,
        checks: Checks,
        scenario: Scenario,
        clients: ClientChecks,
        messages: MessageChecks,
        byzantine: frozenset[int],
        telemetry: DerivedTelemetry,
    ) -> None:
        self.use = checks["use"]
        self.ages = checks["ages"]
        self.waiting = checks["waiting"]
        self.estimates = checks["estimates"]
        self.weights = checks["weights"]
        self.lemma_3 = checks["lemma 3"]
        timing, method = scenario.timing, scenario.method
        self.wait = timing.wait.bind()()
        self.max_age: int = timing.staleness.bind()().max_age
        self.prefer, self.capacity = timing.prefer, timing.mailbox_per_sender
        self.exchanges: bool = getattr(type(method).target, "exchanges", True)
        option: str | None = getattr(type(method).target, "bound_on_d", None)
        self.largest_d_norm: float | None = None if option is None else getattr(method, option)
        if option is None:
            self.lemma_3.unchecked = f"the method {method.name} has no bound on |d|"
        self.has_telemetry = scenario.output.telemetry
        self.clients, self.messages, self.byzantine = clients, messages, byzantine
        self.telemetry = telemetry
        self.open: dict[int, FinishedRound] = {}

    def round_finished(self, record: RoundFinished, line: int) -> None:
        """Check the mailbox and the waiting time at the end of a round."""
        client, round_ = record["client"], record["round"]
        self._close(client)
        inboxes, neighbours = self.messages.inboxes[client], self.clients.neighbours[client]
        num_received = num_pending = 0
        finished = self.open[client] = FinishedRound(record, line, unused=set())
        for sender in neighbours:
            inbox = inboxes[sender]
            stamps = list(inbox.held.values())
            if stamps:
                finished.unused.add(sender)
                if len(stamps) > self.capacity or len(set(stamps)) < len(stamps):
                    self.use.violated(line, f"the mailbox of {client} contains stamps {stamps} from {sender}")
            if inbox.last_removed >= round_ or round_ in stamps:
                num_received += 1
            elif inbox.last_rejected < round_:
                num_pending += 1
        if record["num_used"] != len(finished.unused):
            self.use.violated(
                line,
                f"{finished} uses {record['num_used']} messages, but its mailbox contains messages from "
                f"{len(finished.unused)} neighbours",
            )
        num_needed = self.wait.num_needed(len(neighbours))
        received_enough = num_pending == 0 or num_received >= num_needed or not self.exchanges
        missing = None if received_enough else f"{num_received} of {num_needed} required messages"
        self._check_waiting(record, line, missing)

    def message_used(self, record: MessageUsed, line: int) -> None:
        """Check a message that the last round of its recipient uses."""
        self.ages.num_items += 1
        self.use.num_items += 1
        number, sender, stamp, age = record["message"], record["sender"], record["round"], record["age"]
        finished = self.open.get(record["recipient"])
        if finished is None or finished.record["time_s"] != record["time_s"]:
            self.use.violated(line, f"message {number} is used, but not at the end of a round")
            return
        round_ = finished.record["round"]
        if age != round_ - stamp or age > self.max_age:
            self.ages.violated(
                line,
                f"message {number} with stamp {stamp} and recorded age {age} is used in {finished}; "
                f"the largest age is {self.max_age}",
            )
        if sender not in finished.unused:
            self.use.violated(line, f"{finished} has no message from client {sender}, or has used one before")
        finished.unused.discard(sender)
        finished.used.append(record)
        inbox = self.messages.inboxes[record["recipient"]][sender]
        if stamp <= inbox.last_used:
            self.use.violated(
                line, f"{finished} uses stamp {stamp} from client {sender} after stamp {inbox.last_used}"
            )
        for other, stamp_held in inbox.held.items():
            if other != number and self._is_better(stamp_held, stamp, round_):
                self.use.violated(
                    line, f"{finished} uses stamp {stamp} from client {sender} instead of {stamp_held}"
                )

    def estimate(self, record: EstimateRecord, line: int) -> None:
        """Check that the estimate belongs to the client's last round, and the norm of d in it."""
        self.estimates.num_items += 1
        finished = self.open.get(record["client"])
        if finished is None or finished.record["round"] != record["round"]:
            what = f"the estimate of round {record['round']} of client {record['client']}"
            self.estimates.violated(line, f"{what} does not follow its end, or is too late")
            return
        if finished.estimate is not None:
            self.estimates.violated(line, f"{finished} has a second estimate")
            return
        finished.estimate = record
        if self.largest_d_norm is not None:
            d_norm = record.get("d_norm")
            if d_norm is None or not d_norm <= self.largest_d_norm * (1 + ROUNDING):
                self.lemma_3.violated(line, f"|d| = {d_norm} in {finished}, G_d = {self.largest_d_norm}")

    def message_stats(self, record: MessageStatsRecord, line: int) -> None:
        """Check the weight of a message, and that the client's last round used it."""
        self.weights.num_items += 1
        number, weight = record["message"], record["weight"] or 0.0
        finished = self.open.get(record["recipient"])
        following = [] if finished is None else finished.used[len(finished.stats) :]
        if finished is None or not following or _message(following[0]) != _message(record):
            self.weights.violated(line, f"message {number} is not the next one that the last round used")
            return
        finished.stats.append(record)
        finished.weight += weight
        if weight < 0 or finished.weight > 1 + ROUNDING:
            self.weights.violated(
                line, f"message {number} has weight {weight}, the sum in {finished} is {finished.weight}"
            )

    def training_finished(self, record: TrainingFinished, line: int) -> None:
        """Close the client's last round."""
        self._close(record["client"])

    def evaluated(self, record: Evaluated, line: int) -> None:
        """Close the client's last round."""
        self._close(record["client"])

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Close all rounds. If the run was interrupted, an update that is not due yet is not reported."""
        for client in list(self.open):
            self._close(client, is_due=record["status"] != RunStatus.INTERRUPTED)

    def _close(self, client: int, is_due: bool = True) -> None:
        """Check that the records of a client's last round are complete, and add it to the telemetry."""
        finished = self.open.pop(client, None)
        if finished is None:
            return
        record, line, estimate = finished.record, finished.line, finished.estimate
        if finished.unused:
            self.use.violated(line, f"{finished} has not used the message from client {min(finished.unused)}")
        oldest = max((used["age"] for used in finished.used), default=None)
        if oldest != record["max_age"]:
            self.use.violated(line, f"the oldest message of {finished} has the age {oldest}")
        if self.largest_d_norm is not None and (is_due or estimate is not None):
            self.lemma_3.num_items += 1
            if estimate is None:
                self.lemma_3.violated(line, f"{finished} has no estimate")
        if self.has_telemetry and len(finished.stats) < len(finished.used) and (is_due or finished.stats):
            number = finished.used[len(finished.stats)]["message"]
            self.weights.violated(line, f"{finished} used message {number}, which has no message_stats")
        self.telemetry.add_round(record, finished.used, estimate or {}, finished.stats)

    def _check_waiting(self, record: RoundFinished, line: int, missing: str | None) -> None:
        """Check the duration of the wait. `missing` describes the messages if there are not enough."""
        client, timeout_s = record["client"], self.wait.timeout_s
        if client in self.byzantine and timeout_s is not None:
            return  # the start of a Byzantine client's wait is not recorded
        self.waiting.num_items += 1
        since_s, now_s = self.clients.states[client].time_s, record["time_s"]
        if timeout_s is not None and now_s > since_s + timeout_s:
            self.waiting.violated(
                line,
                f"client {client} waits from {since_s} s to {now_s} s in round {record['round']}, "
                f"longer than its timeout of {timeout_s} s",
            )
        elif missing is not None and (timeout_s is None or now_s < since_s + timeout_s):
            self.waiting.violated(line, f"client {client} ends round {record['round']} with {missing}")

    def _is_better(self, stamp_held: int, used: int, round_: int) -> bool:
        """Return whether a message that stays in the mailbox should have been used or dropped."""
        if self.prefer == "newest":
            return stamp_held != used
        return stamp_held < used or used < stamp_held <= round_


class DueEvaluation(NamedTuple):
    """The time at which a client is to be evaluated, and the end of its training before that."""

    time_s: float
    trained_s: float


class ConsensusRecords:
    """The evaluations that determine when the average of the honest clients' models is due."""

    def __init__(self, scenario: Scenario, byzantine: frozenset[int]) -> None:
        self.is_used = scenario.evaluation.consensus
        self.every, self.last_round = scenario.evaluation.every, scenario.rounds
        self.rounds = {client: -1 for client in range(scenario.clients.count) if client not in byzantine}
        """The round of the latest evaluation of every honest client, or -1."""
        self.next_round: float = 0
        self.due_s = inf
        """The time at which the average became due, if it is."""
        self.is_stale = False
        """Whether an honest client has been evaluated since the last average."""

    @property
    def round(self) -> int:
        """The smallest round of the latest evaluations."""
        return min(self.rounds.values())

    def add(self, record: Evaluated) -> None:
        """Add the evaluation of a client."""
        if self.is_used and record["client"] in self.rounds:
            self.rounds[record["client"]], self.is_stale = record["round"], True
            if self.round >= self.next_round:
                self.due_s = min(self.due_s, record["time_s"])

    def close(self) -> None:
        """Continue after a record of the average: it is next due at a multiple of `every` or at the end."""
        self.is_stale, self.due_s, following = False, inf, self.round - self.round % self.every + self.every
        self.next_round = min(following, self.last_round) if self.round < self.last_round else inf

    def is_overdue(self, now_s: float) -> bool:
        """Return whether time has advanced past an average that is due, once."""
        is_overdue, self.due_s = self.due_s < now_s, inf if self.due_s < now_s else self.due_s
        return is_overdue


VALIDATION = ValidationScores.__annotations__.keys()


class EvaluationChecks:
    """Compares each evaluation with its row of metrics.csv. Runs after the other checks of a record."""

    def __init__(
        self,
        checks: Checks,
        rows: Iterable[MetricsRow],
        scenario: Scenario,
        clients: ClientChecks,
        byzantine: frozenset[int],
        telemetry: DerivedTelemetry,
    ) -> None:
        self.evaluations = checks["evaluations"]
        self.every, self.last_round = scenario.evaluation.every, scenario.rounds
        self.moments = selected_moments(scenario.evaluation.moments)
        self.has_validation = scenario.evaluation.validation_fraction > 0
        self.averages = ConsensusRecords(scenario, byzantine)
        self.rows, self.clients, self.telemetry = iter(rows), clients, telemetry
        self.due: dict[tuple[int, int], DueEvaluation] = {}
        """The clients and rounds to be evaluated before simulated time advances."""

    def evaluated(self, record: Evaluated, line: int) -> None:
        """Check that the evaluation was due, its times, and its row of metrics.csv."""
        client = record["client"]
        self.evaluations.num_items += 1
        state = self.clients.states[client]
        due = self.due.pop((client, record["round"]), None)
        if due is None and record["round"] != state.last_round:
            self.evaluations.violated(
                line, f"the last finished round of client {client} is {state.last_round}"
            )
        trained_s, updated_s = (
            (state.trained_s, state.updated_s) if due is None else (due.trained_s, due.time_s)
        )
        for moment, time_s in (("trained", trained_s), ("updated", updated_s)):
            self._check_moment(moment, time_s, record, line)
        state.untested = state.untested if due else set()
        self.averages.add(record)
        if record.keys() & VALIDATION != (VALIDATION if self.has_validation else set()):
            found = sorted(record.keys() & VALIDATION)
            self.evaluations.violated(line, f"the record has the validation scores {found}")
        row = next(self.rows, None)
        if row is None:
            self.evaluations.violated(line, "metrics.csv has no row for this evaluation")
            return
        expected = {**dict.fromkeys(VALIDATION), **record}
        del expected["event"], expected["time_s"]
        wrong = difference(row, {**expected, **self.telemetry.of_evaluation(client)})
        if wrong is not None:
            self.evaluations.violated(line, f"metrics.csv: {wrong}")

    def _check_moment(self, moment: str, time_s: float, record: Evaluated, line: int) -> None:
        """Check that the scores of a moment are present if it is selected, with the right time."""
        scores = {key: value for key, value in record.items() if key.startswith(f"{moment}_")}
        found = scores[f"{moment}_time_s"]
        if moment not in self.moments:
            if any(value is not None for value in scores.values()):
                self.evaluations.violated(line, f"evaluation.moments does not select {moment}")
        elif found != time_s or scores[f"{moment}_personal_accuracy"] is None:
            client = record["client"]
            self.evaluations.violated(
                line, f"the {moment} model of client {client} is from {time_s} s, not {found} s"
            )

    def consensus(self, record: Consensus, line: int) -> None:
        """Check that the average of the models was due."""
        self.evaluations.num_items += 1
        if not self.averages.is_stale or record["round"] != self.averages.round:
            self.evaluations.violated(line, "the average of the models was not due for this round")
        self.averages.close()

    def round_finished(self, record: RoundFinished, line: int) -> None:
        """Add an evaluation after this round, if one is due; the last one is due at the end of the run."""
        self._check_due(line, record["time_s"])
        client, round_ = record["client"], record["round"]
        if round_ % self.every == 0 and round_ < self.last_round:
            state = self.clients.states[client]
            self.due[client, round_] = DueEvaluation(record["time_s"], state.trained_s)
            state.untested = set()

    def training_started(self, record: TrainingStarted, line: int) -> None:
        """Check that no earlier evaluation is missing."""
        self._check_due(line, record["time_s"])

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Check that no evaluation is missing, except at the last instant of an interrupted run."""
        self._check_due(line, record["time_s"] if record["status"] == RunStatus.INTERRUPTED else inf)
        untested = [
            (client, moment)
            for client, state in enumerate(self.clients.states)
            for moment in self.moments
            if moment in state.untested
        ]
        if RunStatus(record["status"]).is_complete and untested:
            client, moment = untested[0]
            self.evaluations.violated(line, f"the last {moment} model of client {client} was not evaluated")
        if RunStatus(record["status"]).is_complete and self.averages.is_stale:
            self.evaluations.violated(line, "the last average of the models was not evaluated")
        if next(self.rows, None) is not None:
            self.evaluations.violated(line, "metrics.csv has more rows than there are evaluations")

    def _check_due(self, line: int, now_s: float) -> None:
        if self.averages.is_overdue(now_s):
            self.evaluations.violated(line, "an average of the models was not evaluated when it was due")
        overdue = [which for which, due in self.due.items() if due.time_s < now_s]
        for client, round_ in overdue:
            self.evaluations.violated(line, f"client {client} was not evaluated after round {round_}")
            del self.due[client, round_]


def _message(record: MessageRecord) -> tuple[int, int, int, int]:
    return record["message"], record["sender"], record["recipient"], record["round"]
