"""Telemetry and scores, computed again from the records by what has computed them in the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from rdpfl_sim.methods.base import Inspection
from rdpfl_sim.methods.directions import when_trimmed_less
from rdpfl_sim.records.evaluation_log import EvaluationLog
from rdpfl_sim.records.metrics_file import METRICS, MetricsRow
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Record

FIXED = ("event", "time_s", "client", "round", "num_used", "max_age")
"""What a round's record holds besides the method's own diagnostics."""

OF_MESSAGES = ("mean_age", "byzantine_weight")
"""What the records of all messages are needed for; likewise in the telemetry:"""
TELEMETRY_OF_MESSAGES = ("delay_s", "age", "messages_from", "false_rejections")


@dataclass(frozen=True, slots=True)
class Told:
    """A message as telemetry sees it."""

    sender: int
    recipient: int
    round: int

    @property
    def broadcast(self) -> Told:
        """What it says of itself."""
        return self


class Measures:
    """Reads what the run has measured out of its records."""

    def __init__(self, scenario: Scenario, byzantine: frozenset[int], hops: Sequence[int | None]) -> None:
        self.telemetry = Telemetry(byzantine, hops, when_trimmed_less(scenario.method))
        self.hops = hops
        self.knows_messages = scenario.output.message_events == 1
        self.row = cast("MetricsRow", dict.fromkeys(METRICS))
        """The latest row of metrics.csv, as it should be."""
        self.scores = EvaluationLog(byzantine, len(hops) - len(byzantine), self._write)
        self.round: Record | None = None
        """The round whose messages follow."""
        self.used: list[Record] = []

    def round_finished(self, record: Record, line: int) -> None:
        """A round has ended; what it has used follows."""
        self._count_round()
        self.round = record

    def message_used(self, record: Record, line: int) -> None:
        """A round has used this message."""
        self.used.append(record)

    def message_delivered(self, record: Record, line: int) -> None:
        """A message has arrived."""
        self.telemetry.delivered(record["delay_s"])

    def message_stale(self, record: Record, line: int) -> None:
        """A message was dropped."""
        self.telemetry.dropped(_told(record), "stale")

    def message_duplicate(self, record: Record, line: int) -> None:
        """A message was dropped."""
        self.telemetry.dropped(_told(record), "duplicate")

    def message_rejected(self, record: Record, line: int) -> None:
        """A message was dropped."""
        self.telemetry.dropped(_told(record), "rejected")

    def evaluation(self, record: Record, line: int) -> None:
        """A client was evaluated."""
        self._count_round()
        client = record["client"]
        scores = {key: value for key, value in record.items() if key not in FIXED}
        means = self.telemetry.since_last_evaluation(client)
        details = {"hops": self.hops[client], **means}
        self.scores.add(record["time_s"], client, record["round"], {**scores, **details})

    def run_finished(self, record: Record, line: int) -> None:
        """No round follows."""
        self._count_round()

    def telemetry_beside(self, said: dict[str, Any]) -> dict[str, Any]:
        """The telemetry; what the records do not hold is taken from what is said."""
        found = self.telemetry.summary()
        if self.knows_messages:
            return found
        return {
            **_without_messages(found, said),
            **{key: said.get(key) for key in found if key in TELEMETRY_OF_MESSAGES},
            "rounds": {
                kind: _without_messages(means, said.get("rounds", {}).get(kind, {}))
                if kind == "all"
                else said.get("rounds", {}).get(kind)
                for kind, means in found["rounds"].items()
            },
            "by_hops": {
                hops: _without_messages(means, said.get("by_hops", {}).get(hops, {}))
                for hops, means in found["by_hops"].items()
            },
        }

    def _count_round(self) -> None:
        """Count the round whose messages have all been read."""
        record, used = self.round, self.used
        if record is None:
            return
        diagnostics = {key: value for key, value in record.items() if key not in FIXED}
        if self.knows_messages:
            messages = [_told(message) for message in used]
        else:
            messages = [Told(-1, record["client"], record["round"])] * record["num_used"]
        weights = [message["weight"] for message in used if message.get("weight") is not None]
        is_weighed = self.knows_messages and used and len(weights) == len(used)
        inspection = Inspection([], None, weights) if is_weighed else None
        self.telemetry.round_finished(record["client"], record["round"], messages, diagnostics, inspection)
        self.round, self.used = None, []

    def _write(self, row: MetricsRow) -> None:
        self.row = row


def _told(record: Record) -> Told:
    return Told(record["sender"], record["recipient"], record["round"])


def _without_messages(found: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    return {key: said.get(key) if key in OF_MESSAGES else value for key, value in found.items()}
