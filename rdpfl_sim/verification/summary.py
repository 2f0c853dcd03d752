"""Checks of summary.json: its message counts, and the numbers that follow from records and metrics.csv."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, isclose
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rdpfl_sim.components.options import SLACK
from rdpfl_sim.files import JsonObject
from rdpfl_sim.records import metrics
from rdpfl_sim.records.metrics import TARGETS, MetricsRow, selected_moments
from rdpfl_sim.records.record_types import (
    Consensus,
    MessageDelivered,
    MessageDropped,
    MessageStatsRecord,
    MessageUsed,
    RecordHead,
    RoundFinished,
    RunFinished,
    RunStarted,
)
from rdpfl_sim.records.summary import MESSAGE_COUNTS, OUTCOMES
from rdpfl_sim.verification.check import Checks, difference
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.files import UNFINISHED, VerifiedFolder
from rdpfl_sim.verification.messages import MessageChecks
from rdpfl_sim.world.mailbox import MAILBOX_FULL, TOO_OLD

MEANS = {
    "used_per_round": ("used", "rounds"),
    "mean_age": ("age", "used"),
    "clipped": ("clipped", "estimates"),
    "bounded": ("bounded", "estimates"),
    "byzantine_weight": ("weight", "weighed"),
    "neighbour_share": ("share", "shares"),
}
"""Numerator and denominator of each mean over rounds, as keys of the sums."""

OF_MESSAGES = ("mean_age", "byzantine_weight")
"""Means that require the records of all messages."""


class Sums(defaultdict[str, float]):
    """Sums by name, 0 if nothing was added."""

    def __init__(self) -> None:
        super().__init__(float)

    def add(self, values: Mapping[str, float]) -> None:
        """Add to several sums."""
        for name, value in values.items():
            self[name] += value


class DerivedTelemetry:
    """Adds up rounds, delays, and the outcomes of messages to honest clients."""

    def __init__(self, byzantine: frozenset[int], knows_messages: bool) -> None:
        self.byzantine = byzantine
        self.knows_messages = knows_messages
        """Whether the records contain all messages."""
        self.rounds: defaultdict[str, Sums] = defaultdict(Sums)
        """Sums over groups of rounds of honest clients: `all`, `clean` and `attacked`."""
        self.recent: defaultdict[int, Sums] = defaultdict(Sums)
        """Sums over each client's rounds since its last evaluation."""
        self.messages = {"honest": Sums(), "byzantine": Sums()}
        """Messages to honest clients by kind of sender: numbers by outcome, and weights."""
        self.discarded: Counter[str] = Counter()
        """Messages between honest clients that were dropped, by reason."""
        self.ages: Counter[str] = Counter()
        self.num_delivered = 0
        """Number of messages that honest clients delivered to honest clients."""
        self.delays_s, self.shares = array("d"), array("d")

    def add_round(
        self,
        record: RoundFinished,
        used: Sequence[MessageUsed],
        estimate: Mapping[str, Any],
        stats: Sequence[MessageStatsRecord],
    ) -> None:
        """Add a round with its messages, its estimate and the statistics of its messages."""
        client, num_used = record["client"], record["num_used"]
        sums = {"rounds": 1.0, "used": num_used, "age": sum(message["age"] for message in used)}
        if "tau" in estimate:
            clips = {key: float(estimate.get(key) or 0) for key in ("clipped", "bounded")}
            sums |= {"estimates": 1.0, **clips}
        share = estimate.get("neighbour_share")
        if share is not None:
            sums |= {"shares": 1.0, "share": share}
        weights = [(one["sender"], one["weight"]) for one in stats if one["weight"] is not None]
        if not used or len(weights) < len(used):
            weights = []
        else:
            sums |= {"weighed": 1.0, "weight": sum(w for sender, w in weights if sender in self.byzantine)}
        self.recent[client].add(sums)
        if client in self.byzantine:
            return
        is_attacked = any(message["sender"] in self.byzantine for message in used)
        for group in ("all", "attacked" if is_attacked else "clean"):
            self.rounds[group].add(sums)
        if share is not None:
            self.shares.append(share)
        for message in used:
            self.ages[str(message["age"])] += 1
            self._of(message["sender"])["used"] += 1
        for sender, weight in weights:
            weighed = {"weighed": 1.0, "ignored": float(weight == 0), "weight": weight * num_used}
            self._of(sender).add(weighed)

    def message_delivered(self, record: MessageDelivered, line: int) -> None:
        """Add the delay of a message."""
        self.delays_s.append(record["delay_s"])
        self.num_delivered += self.byzantine.isdisjoint((record["sender"], record["recipient"]))

    def message_stale(self, record: MessageDropped, line: int) -> None:
        """Count a stale message."""
        self._dropped(record, "stale")

    def message_duplicate(self, record: MessageDropped, line: int) -> None:
        """Count a duplicate message."""
        self._dropped(record, "duplicate")

    def message_rejected(self, record: MessageDropped, line: int) -> None:
        """Count a rejected message."""
        self._dropped(record, "rejected")

    def of_evaluation(self, client: int) -> JsonObject:
        """Return the columns of metrics.csv that follow from the rounds since the previous call."""
        means = self._means(self.recent.pop(client, Sums()))
        return {"byzantine": int(client in self.byzantine), **means}

    def summary(self) -> JsonObject:
        """Return the section `telemetry` of the summary, without what the records do not contain."""
        shares, every_round = _distribution(self.shares), self._group("all")
        if not self.knows_messages:
            return {"neighbour_share": shares, "rounds": {"all": every_round}}
        honest = self.messages["honest"]
        groups = {group: self._group(group) for group in ("clean", "attacked")}
        return {
            "neighbour_share": shares,
            "rounds": {"all": every_round, **groups},
            "delay_s": _distribution(self.delays_s),
            "age": self.ages,
            "messages_from": {
                kind: {
                    **{outcome: sums[outcome] for outcome in OUTCOMES},
                    "ignored": _ratio(sums["ignored"], sums["weighed"]),
                    "relative_weight": _ratio(sums["weight"], sums["weighed"]),
                }
                for kind, sums in self.messages.items()
            },
            "false_rejections": _ratio(honest["rejected"], sum(honest[outcome] for outcome in OUTCOMES)),
            "too_old": _ratio(self.discarded[TOO_OLD], self.num_delivered),
            "mailbox_full": _ratio(self.discarded[MAILBOX_FULL], self.num_delivered),
        }

    def _dropped(self, record: MessageDropped, outcome: str) -> None:
        if record["recipient"] not in self.byzantine:
            self._of(record["sender"])[outcome] += 1
            if record["sender"] not in self.byzantine:
                self.discarded[record["reason"]] += 1

    def _of(self, sender: int) -> Sums:
        return self.messages["byzantine" if sender in self.byzantine else "honest"]

    def _group(self, group: str) -> JsonObject:
        return {"num": self.rounds[group]["rounds"], **self._means(self.rounds[group])}

    def _means(self, sums: Sums) -> dict[str, float | None]:
        known = [name for name in MEANS if self.knows_messages or name not in OF_MESSAGES]
        return {name: _ratio(*(sums[key] for key in MEANS[name])) for name in known}


class SummaryChecks:
    """Compares the summary with the records and with metrics.csv."""

    def __init__(
        self, checks: Checks, files: VerifiedFolder, clients: ClientChecks, telemetry: DerivedTelemetry
    ) -> None:
        self.conservation = checks["conservation"]
        self.counts = checks["counts"]
        self.numbers = checks["summary"]
        self.files, self.clients, self.telemetry = files, clients, telemetry
        self.average: Consensus | None = None
        """The last average of the honest clients' models."""
        self.first: RunStarted | None = None
        self.last: RunFinished | None = None

    def run_started(self, record: RunStarted, line: int) -> None:
        """Store the first record."""
        self.first = record

    def consensus(self, record: Consensus, line: int) -> None:
        """Store the last average of the models."""
        self.average = record

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Store the last record."""
        self.last = record

    def compare(self, messages: MessageChecks, has_records: bool) -> None:
        """Compare the summary with everything that was read."""
        summary = self.files.summary
        if summary is None or "messages" not in summary:
            for check in (self.conservation, self.counts, self.numbers):
                check.unchecked = UNFINISHED
            return
        self._check_conservation(summary["messages"])
        self._compare_counts(summary["messages"], messages)
        if has_records and self.last is None:
            self.numbers.unchecked = "the records do not end with run_finished"
            return
        num_honest = len(self.clients.states) - len(self.files.byzantine)
        moments = self.files.scenario.evaluation.moments
        self._compare(summary, of_metrics(self.files.metrics, self.files.byzantine, num_honest, moments))
        if self.first is not None and self.last is not None:
            self._compare(summary, self._from_records(self.first, self.last))

    def _check_conservation(self, recorded: JsonObject) -> None:
        for whole, parts in (
            ("sent", ("delivered", "lost", "in_flight")),
            ("delivered", (*OUTCOMES, "left_over")),
        ):
            self.conservation.num_items += 1
            if recorded[whole] != sum(recorded[part] for part in parts):
                numbers = ", ".join(f"{part} {recorded[part]}" for part in (whole, *parts))
                self.conservation.violated(None, f"the messages do not add up: {numbers}")

    def _compare_counts(self, recorded: JsonObject, messages: MessageChecks) -> None:
        counts = messages.counts
        found = {
            "sent": counts["sent"] + counts["copied"],
            **{outcome: counts[outcome] for outcome in ("copied", "delivered", "lost", *OUTCOMES)},
            "in_flight": len(messages.in_transit),
            "left_over": len(messages.in_mailbox),
            "reordered": messages.num_reordered,
        }
        for key, number in found.items():
            self.counts.num_items += 1
            if recorded[key] != number:
                self.counts.violated(
                    None, f"messages.{key} is {recorded[key]}, according to the records {number}"
                )
        if not messages.retransmits:
            self.counts.num_items += 1
            if not isclose(recorded["bytes"], messages.num_bytes, rel_tol=1e-9, abs_tol=0.6):
                self.counts.violated(
                    None,
                    f"messages.bytes is {recorded['bytes']}, according to the records {messages.num_bytes}",
                )

    def _compare(self, summary: JsonObject, expected: JsonObject) -> None:
        self.numbers.num_items += _num_leaves(expected)
        wrong = difference(summary, expected)
        if wrong is not None:
            self.numbers.violated(None, wrong)

    def _from_records(self, first: RunStarted, last: RunFinished) -> JsonObject:
        num_rounds = [state.num_rounds for state in self.clients.states]
        counts: Mapping[str, Any] = last
        return {
            "status": last["status"],
            "simulated_s": last["time_s"],
            "num_parameters": first["num_parameters"],
            "rounds_done": [min(num_rounds), max(num_rounds)],
            "num_faults": self.clients.timeline.num_records,
            "messages": {key: counts[key] for key in MESSAGE_COUNTS},
            "telemetry": self.telemetry.summary(),
            **({} if self.average is None else {"consensus": _without_head(self.average)}),
        }


def _without_head(record: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in record.items() if key not in RecordHead.__annotations__}


def of_metrics(
    rows: Iterable[MetricsRow], byzantine: frozenset[int], num_honest: int, moments: str
) -> JsonObject:
    """Return the numbers of the summary that follow from metrics.csv, with `evaluation.moments`."""
    rows = list(rows)
    latest = {row["client"]: row for row in rows}
    groups = {
        "honest": [row for client, row in latest.items() if client not in byzantine],
        "all": [*latest.values()],
    }
    tests = metrics.tests_of(groups["all"])
    sections: dict[str, JsonObject] = {
        moment: {
            "accuracy": {
                group: {test: _statistics(_accuracies(members, moment, test)) for test in tests}
                for group, members in groups.items()
            },
            "time_to_accuracy_s": _times_to_accuracy(rows, byzantine, num_honest, moment),
        }
        for moment in selected_moments(moments)
    }
    headline = next(iter(sections))
    return {"moment": headline, **sections.pop(headline), **sections}


def _times_to_accuracy(
    rows: Iterable[MetricsRow], byzantine: frozenset[int], num_honest: int, moment: str
) -> dict[str, float]:
    """Return the first time at which the mean over all honest clients is at least each target."""
    changes: dict[float, dict[int, float]] = {}
    for row in rows:
        values: Mapping[str, Any] = row
        if row["client"] not in byzantine:
            at_time = changes.setdefault(values[f"{moment}_time_s"], {})
            at_time[row["client"]] = values[f"{moment}_personal_accuracy"]
    latest: dict[int, float] = {}
    times_s: dict[str, float] = {}
    for time_s in sorted(changes):
        latest |= changes[time_s]
        mean = sum(latest.values()) / num_honest
        for target in TARGETS:
            if mean >= target - SLACK:
                times_s.setdefault(str(target), time_s)
    return times_s


def _num_leaves(value: object) -> int:
    return sum(map(_num_leaves, value.values())) if isinstance(value, dict) else 1


def _accuracies(rows: Iterable[MetricsRow], moment: str, test: str) -> NDArray[np.float64]:
    found = [cast("Mapping[str, float | None]", row)[f"{moment}_{test}_accuracy"] for row in rows]
    return np.array([value for value in found if value is not None])


def _statistics(values: NDArray[np.float64]) -> JsonObject | None:
    return {each.key: each.compute(values) for each in metrics.STATISTICS} if values.size else None


def _distribution(values: Sequence[float]) -> JsonObject | None:
    if not values:
        return None
    ordered = np.sort(values)
    places = {f"p{round(100 * q)}": max(ceil(q * len(ordered)) - 1, 0) for q in (0.5, 0.9, 0.99)}
    quantiles = {key: float(ordered[place]) for key, place in places.items()}
    return {"mean": float(ordered.mean()), **quantiles, "max": float(ordered[-1])}


def _ratio(amount: float, number: float) -> float | None:
    return amount / number if number else None
