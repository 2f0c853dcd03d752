"""Checks of the records that follow a round: its estimate and the statistics of its messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from rdpfl_sim.records.record_types import (
    EstimateRecord,
    Evaluated,
    FaultRecord,
    FinalModel,
    MessageRecord,
    MessageStatsRecord,
    MessageUsed,
    RoundFinished,
    RoundRecord,
    RunFinished,
    TrainingFinished,
)
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.telemetry import RecomputedTelemetry
from rdpfl_sim.verification.theory import Lemma3

ROUNDING = 1e-5
"""Tolerance for the sum of weights."""

COMMON_FIELDS = tuple(RoundRecord.__annotations__)


@dataclass
class OpenRound:
    """A finished round whose estimate or message statistics may still follow."""

    finished: RoundFinished
    used: list[MessageUsed] = field(default_factory=list)
    estimate: EstimateRecord | None = None
    stats: list[MessageStatsRecord] = field(default_factory=list)
    weight: float = 0.0
    """The sum of the weights in `stats`."""
    stopped_at_s: float | None = None
    """The time at which a fault stopped the client, or None."""

    @property
    def is_unreported(self) -> bool:
        """Whether the update has not been reported, although the client still runs."""
        return self.estimate is None and not self.stats and self.stopped_at_s is None


class EstimateChecks:
    """Joins every round with its estimate and the statistics of its messages.

    A round is closed, and counted in the telemetry, when the statistics are complete or can no longer follow.
    """

    def __init__(self, scenario: Scenario, clients: ClientChecks, telemetry: RecomputedTelemetry) -> None:
        self.estimates = Check(
            "estimates",
            "A round has at most one estimate, written before its evaluation and by the end of the next "
            "training.",
            Needs.RECORDS,
        )
        self.weights = Check(
            "weights",
            "Every used message has statistics after the estimate of its round; weights and distances are "
            "not negative, and weights add up to at most 1.",
            Needs.MESSAGES,
        )
        self.lemma_3 = Lemma3(scenario)
        self.checks = [self.estimates, self.weights, self.lemma_3.check]
        self.has_telemetry = scenario.output.telemetry
        self.clients, self.telemetry = clients, telemetry
        self.open: dict[int, OpenRound] = {}
        self.closed: dict[int, OpenRound] = {}
        """The latest closed round of every client."""
        self.unreported: list[tuple[OpenRound, int]] = []
        """Rounds whose update was not reported before the final model, and the line of the latter."""
        self.current: int | None = None
        """The client whose estimate or statistics were read last."""
        self.diagnostics: dict[int, tuple[str, ...]] = {}
        """The names of the method's diagnostics, by number of used messages."""

    def round_finished(self, record: RoundFinished, line: int) -> None:
        """Open the round: its estimate may follow."""
        self._close(record["client"], line)
        self.open[record["client"]] = OpenRound(record)

    def message_used(self, record: MessageUsed, line: int) -> None:
        """Add a message to the open round: its statistics may follow."""
        round_ = self.open.get(record["recipient"])
        if round_ is not None:
            round_.used.append(record)

    def estimate(self, record: EstimateRecord, line: int) -> None:
        """Check that the estimate belongs to the client's last round and is in time."""
        self.estimates.num_items += 1
        client = record["client"]
        self._turn_to(client, line)
        round_ = self.open.get(client)
        what = f"the estimate of round {record['round']} of client {client}"
        if round_ is None or round_.finished["round"] != record["round"] or round_.estimate is not None:
            self.estimates.violated(line, f"{what} {self._flaw(record)}")
            return
        if round_.stats:
            self.estimates.violated(line, f"{what} follows the statistics of messages")
        if round_.stopped_at_s is not None and round_.stopped_at_s < record["time_s"]:
            self.estimates.violated(
                line, f"{what} is too late: the client stopped at {round_.stopped_at_s} s"
            )
        round_.estimate = record
        self.lemma_3.estimate(record, line)

    def message_stats(self, record: MessageStatsRecord, line: int) -> None:
        """Check the weight of a message, and that the client's last round used it."""
        self.weights.num_items += 1
        client, number = record["recipient"], record["message"]
        self._turn_to(client, line)
        round_ = self.open.get(client)
        place = 0 if round_ is None else len(round_.stats)
        if round_ is None or place >= len(round_.used):
            self.weights.violated(line, f"message {number} was not used in the round of the last estimate")
            return
        used = round_.used[place]
        if _message_of(record) != _message_of(used):
            self.weights.violated(line, f"message {number}: expected message {used['message']}")
        if round_.estimate is not None and round_.estimate["time_s"] != record["time_s"]:
            self.weights.violated(line, f"the estimate was written at {round_.estimate['time_s']} s")
        numbers = record["weight"], record["distance_to_own"], record["distance_to_predicted"]
        for key, value in zip(("weight", "distance_to_own", "distance_to_predicted"), numbers, strict=True):
            if value is not None and value < 0:
                self.weights.violated(line, f"{key} is {value}")
        round_.stats.append(record)
        round_.weight += record["weight"] or 0.0
        if round_.weight > 1 + ROUNDING:
            self.weights.violated(line, f"the weights of the round add up to {round_.weight}")

    def training_finished(self, record: TrainingFinished, line: int) -> None:
        """Close the client's last round: its estimate precedes the end of the next training."""
        self._close(record["client"], line)

    def evaluated(self, record: Evaluated, line: int) -> None:
        """Close the round whose model is evaluated."""
        if self.current is not None:
            self._close(self.current, line)
        round_ = self.open.get(record["client"])
        if round_ is not None and round_.finished["round"] == record["round"]:
            self._close(record["client"], line)

    def fault(self, record: FaultRecord, line: int) -> None:
        """Store the time at which clients stop; their estimates are written at the same time."""
        for client in self.clients.effect.stopped:
            if client in self.open:
                self.open[client].stopped_at_s = record["time_s"]

    def final_model(self, record: FinalModel, line: int) -> None:
        """Close the client's last round; the status of the run decides whether its update may be missing."""
        round_ = self.open.get(record["client"])
        if round_ is not None and round_.is_unreported:
            self.closed[record["client"]] = self.open.pop(record["client"])
            self.unreported.append((round_, line))
        else:
            self._close(record["client"], line)

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Close all rounds. If the run was interrupted, an update that is not due yet is not reported."""
        for client in list(self.open):
            self._close(client, line)
        for round_, line_of_model in self.unreported:
            if record["status"] == RunStatus.INTERRUPTED:
                self.telemetry.add_round(round_.finished, round_.used, {}, [])
            else:
                self._count(round_, line_of_model)

    def _flaw(self, record: EstimateRecord) -> str:
        """Return the problem with an unexpected estimate."""
        client = record["client"]
        for round_ in (self.open.get(client), self.closed.get(client)):
            if round_ is not None and round_.finished["round"] == record["round"]:
                return "is too late" if round_.estimate is None else "is not the first"
        return "does not follow the end of that round"

    def _turn_to(self, client: int, line: int) -> None:
        """Close the round whose records were read last, unless it belongs to this client."""
        if self.current is not None and self.current != client:
            self._close(self.current, line)
        self.current = client

    def _close(self, client: int, line: int) -> None:
        """Close the client's last round, if it is open."""
        if client == self.current:
            self.current = None
        round_ = self.open.pop(client, None)
        if round_ is not None:
            self.closed[client] = round_
            self._count(round_, line)

    def _count(self, round_: OpenRound, line: int) -> None:
        """Check that nothing is missing, and count the round."""
        record, estimate = round_.finished, round_.estimate
        of_round = f"round {record['round']} of client {record['client']}"
        names = tuple(key for key in estimate or () if key not in COMMON_FIELDS)
        expected = self.diagnostics.setdefault(record["num_used"], names)
        if not names and expected:
            self.estimates.violated(line, f"{of_round} has no estimate before this record")
        elif names != expected:
            others = ", ".join(expected) or "none"
            self.estimates.violated(
                line, f"the estimate of {of_round} has {', '.join(names)}; other estimates have {others}"
            )
        self.lemma_3.round_closed(of_round, estimate, line)
        if self.has_telemetry and len(round_.stats) < len(round_.used):
            missing = round_.used[len(round_.stats)]["message"]
            self.weights.violated(
                line, f"{of_round} has used message {missing}, which has no message_stats record"
            )
        diagnostics = {name: value for name, value in (estimate or {}).items() if name not in COMMON_FIELDS}
        self.telemetry.add_round(record, round_.used, diagnostics, round_.stats)


def _message_of(record: MessageRecord) -> tuple[int, int, int, int]:
    return record["message"], record["sender"], record["recipient"], record["round"]
