"""Telemetry and scores, recomputed from the records with the code of the simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rdpfl_sim.methods.aggregation import when_too_few
from rdpfl_sim.records.evaluation_log import EvaluationLog
from rdpfl_sim.records.json_file import JsonObject
from rdpfl_sim.records.metrics_file import METRICS, MetricsRow
from rdpfl_sim.records.record_types import (
    Evaluated,
    MessageDelivered,
    MessageDropped,
    MessageRecord,
    MessageStatsRecord,
    RoundFinished,
    RoundRecord,
)
from rdpfl_sim.records.telemetry import Telemetry
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.world.observer import UsedMessage

OF_MESSAGES = ("mean_age", "byzantine_weight")
"""Columns that require the records of all messages."""
TELEMETRY_OF_MESSAGES = ("delay_s", "age", "messages_from", "false_rejections", "too_old", "mailbox_full")
"""Keys of the telemetry that require the records of all messages."""


class RecomputedTelemetry:
    """Feeds the records of a run to `Telemetry` and `EvaluationLog`."""

    def __init__(self, scenario: Scenario, byzantine: frozenset[int], hops: Sequence[int | None]) -> None:
        self.telemetry = Telemetry(byzantine, hops, when_too_few(scenario.method))
        self.hops = hops
        self.knows_messages = scenario.output.message_events == 1
        self.row = cast("MetricsRow", dict.fromkeys(METRICS))
        """The expected row of metrics.csv for the latest evaluation."""
        self.scores = EvaluationLog(byzantine, len(hops) - len(byzantine), self._write)

    def add_round(
        self,
        finished: RoundFinished,
        used: Sequence[MessageRecord],
        diagnostics: Mapping[str, Any],
        stats: Sequence[MessageStatsRecord],
    ) -> None:
        """Count a closed round."""
        client, round_ = finished["client"], finished["round"]
        if self.knows_messages:
            messages = [_message_of(message) for message in used]
        else:
            messages = [UsedMessage(-1, -1, client, round_)] * finished["num_used"]
        weights = [one["weight"] for one in stats if one["weight"] is not None]
        is_weighed = self.knows_messages and used and len(weights) == len(used)
        self.telemetry.round_finished(client, messages, [round_ - message.round for message in messages])
        self.telemetry.update_reported(client, messages, diagnostics, weights if is_weighed else None)

    def message_delivered(self, record: MessageDelivered, line: int) -> None:
        """Count a delivered message."""
        self.telemetry.delivered(record["sender"], record["recipient"], record["delay_s"])

    def message_stale(self, record: MessageDropped, line: int) -> None:
        """Count a stale message."""
        self._dropped(record, "stale")

    def message_duplicate(self, record: MessageDropped, line: int) -> None:
        """Count a duplicate message."""
        self._dropped(record, "duplicate")

    def message_rejected(self, record: MessageDropped, line: int) -> None:
        """Count a rejected message."""
        self._dropped(record, "rejected")

    def evaluated(self, record: Evaluated, line: int) -> None:
        """Compute the expected row of metrics.csv."""
        client = record["client"]
        scores = {key: value for key, value in record.items() if key not in RoundRecord.__annotations__}
        means = self.telemetry.since_last_evaluation(client)
        details = {"hops": self.hops[client], **means}
        self.scores.add(record["time_s"], client, record["round"], {**scores, **details})

    def expected_telemetry(self, recorded: JsonObject) -> JsonObject:
        """Return the telemetry; values that cannot be recomputed are copied from `recorded`."""
        found = self.telemetry.summary()
        if self.knows_messages:
            return found
        return {
            **_without_messages(found, recorded),
            **{key: recorded.get(key) for key in found if key in TELEMETRY_OF_MESSAGES},
            "rounds": {
                kind: _without_messages(means, recorded.get("rounds", {}).get(kind, {}))
                if kind == "all"
                else recorded.get("rounds", {}).get(kind)
                for kind, means in found["rounds"].items()
            },
            "by_hops": {
                hops: _without_messages(means, recorded.get("by_hops", {}).get(hops, {}))
                for hops, means in found["by_hops"].items()
            },
        }

    def _dropped(self, record: MessageDropped, outcome: str) -> None:
        self.telemetry.dropped(record["sender"], record["recipient"], outcome, record["reason"])

    def _write(self, row: MetricsRow) -> None:
        self.row = row


def _message_of(record: MessageRecord) -> UsedMessage:
    return UsedMessage(record["message"], record["sender"], record["recipient"], record["round"])


def _without_messages(found: JsonObject, recorded: JsonObject) -> JsonObject:
    return {key: recorded.get(key) if key in OF_MESSAGES else value for key, value in found.items()}
