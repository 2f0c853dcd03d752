"""Telemetry and scores, recomputed from the records with the code of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from rdpfl_sim.methods.aggregation import when_too_few
from rdpfl_sim.methods.batching import ClientMessageStats
from rdpfl_sim.records.evaluation_log import EvaluationLog
from rdpfl_sim.records.metrics_file import METRICS, MetricsRow
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.verification.check import Record

FIXED = ("event", "time_s", "client", "round", "num_used", "max_age")
"""The fields of a round's record that are not diagnostics of the method."""

OF_MESSAGES = ("mean_age", "byzantine_weight")
"""Columns that require the records of all messages, and the same for the telemetry:"""
TELEMETRY_OF_MESSAGES = ("delay_s", "age", "messages_from", "false_rejections")


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message with the attributes that `Telemetry` reads."""

    sender: int
    recipient: int
    round: int

    @property
    def broadcast(self) -> RecordedMessage:
        """The message itself, which has the attributes of its broadcast."""
        return self


class RecomputedTelemetry:
    """Feeds the records of a run to `Telemetry` and `EvaluationLog`."""

    def __init__(self, scenario: Scenario, byzantine: frozenset[int], hops: Sequence[int | None]) -> None:
        self.telemetry = Telemetry(byzantine, hops, when_too_few(scenario.method))
        self.hops = hops
        self.knows_messages = scenario.output.message_events == 1
        self.row = cast("MetricsRow", dict.fromkeys(METRICS))
        """The expected row of metrics.csv for the latest evaluation."""
        self.scores = EvaluationLog(byzantine, len(hops) - len(byzantine), self._write)
        self.round: Record | None = None
        """The round whose messages follow."""
        self.used: list[Record] = []

    def round_finished(self, record: Record, line: int) -> None:
        """Keep the record until those of its used messages have been read."""
        self._count_round()
        self.round = record

    def message_used(self, record: Record, line: int) -> None:
        """Add a message to the current round."""
        self.used.append(record)

    def message_delivered(self, record: Record, line: int) -> None:
        """Count the delay of a message."""
        self.telemetry.delivered(record["delay_s"])

    def message_stale(self, record: Record, line: int) -> None:
        """Count a stale message."""
        self.telemetry.dropped(_message_of(record), "stale")

    def message_duplicate(self, record: Record, line: int) -> None:
        """Count a duplicate message."""
        self.telemetry.dropped(_message_of(record), "duplicate")

    def message_rejected(self, record: Record, line: int) -> None:
        """Count a rejected message."""
        self.telemetry.dropped(_message_of(record), "rejected")

    def evaluation(self, record: Record, line: int) -> None:
        """Compute the expected row of metrics.csv."""
        self._count_round()
        client = record["client"]
        scores = {key: value for key, value in record.items() if key not in FIXED}
        means = self.telemetry.since_last_evaluation(client)
        details = {"hops": self.hops[client], **means}
        self.scores.add(record["time_s"], client, record["round"], {**scores, **details})

    def run_finished(self, record: Record, line: int) -> None:
        """Count the last round."""
        self._count_round()

    def telemetry_beside(self, said: dict[str, Any]) -> dict[str, Any]:
        """Return the telemetry; values that the records do not determine are copied from `said`."""
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
        """Count the round whose messages have been read."""
        record, used = self.round, self.used
        if record is None:
            return
        diagnostics = {key: value for key, value in record.items() if key not in FIXED}
        if self.knows_messages:
            messages = [_message_of(message) for message in used]
        else:
            messages = [RecordedMessage(-1, record["client"], record["round"])] * record["num_used"]
        weights = [message["weight"] for message in used if message.get("weight") is not None]
        is_weighed = self.knows_messages and used and len(weights) == len(used)
        inspection = ClientMessageStats([], None, weights) if is_weighed else None
        self.telemetry.round_finished(record["client"], record["round"], messages, diagnostics, inspection)
        self.round, self.used = None, []

    def _write(self, row: MetricsRow) -> None:
        self.row = row


def _message_of(record: Record) -> RecordedMessage:
    return RecordedMessage(record["sender"], record["recipient"], record["round"])


def _without_messages(found: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    return {key: said.get(key) if key in OF_MESSAGES else value for key, value in found.items()}
