"""Checks of summary.json: its message counts, and every number that follows from the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdpfl_sim.files import JsonObject
from rdpfl_sim.records.record_types import RunFinished, RunStarted
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.records.summary import MESSAGE_COUNTS, OUTCOMES
from rdpfl_sim.verification.check import Checks, difference
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.files import (
    UNFINISHED,
    DerivedTelemetry,
    DerivedTheory,
    VerifiedFolder,
    hops_from,
    of_metrics,
)
from rdpfl_sim.verification.messages import MessageChecks


class SummaryChecks:
    """Compares the summary with the records and with metrics.csv."""

    def __init__(
        self, checks: Checks, files: VerifiedFolder, clients: ClientChecks, telemetry: DerivedTelemetry
    ) -> None:
        self.conservation = checks["conservation"]
        self.counts = checks["counts"]
        self.numbers = checks["summary"]
        self.files, self.clients, self.telemetry = files, clients, telemetry
        self.neighbours = clients.graph
        """The neighbours of every client at the start of the run."""
        self.theory = DerivedTheory()
        self.first: RunStarted | None = None
        self.last: RunFinished | None = None

    def run_started(self, record: RunStarted, line: int) -> None:
        """Store the first record."""
        self.first = record

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
        try:
            self._check_conservation(summary["messages"])
            self._compare_counts(summary["messages"], messages)
            if has_records and self.last is None:
                self.numbers.unchecked = "the records do not end with run_finished"
                return
            self._compare(summary, self._from_scenario())
            num_honest = len(self.neighbours) - len(self.files.byzantine)
            moments = self.files.scenario.evaluation.moments
            self._compare(summary, of_metrics(self.files.metrics, self.files.byzantine, num_honest, moments))
            if self.first is not None and self.last is not None:
                self._compare(summary, self._from_records(summary, self.first, self.last))
        except (LookupError, TypeError, AttributeError) as error:
            self.numbers.violated(
                None, f"summary.json has an invalid structure ({type(error).__name__}: {error})"
            )

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
                self.counts.violated(None, f"messages.{key} is {recorded[key]}, not {number}")
        if not messages.retransmits:
            self.counts.num_items += 1
            slack = 0.0 if self.files.scenario.network.compression == 1 else 1 + 1e-9 * messages.num_bytes
            if abs(recorded["bytes"] - messages.num_bytes) > slack:
                self.counts.violated(None, f"messages.bytes is {recorded['bytes']}, not {messages.num_bytes}")

    def _compare(self, summary: JsonObject, expected: JsonObject) -> None:
        self.numbers.num_items += _num_leaves(expected)
        wrong = difference(summary, expected)
        if wrong is not None:
            self.numbers.violated(None, wrong)

    def _from_scenario(self) -> JsonObject:
        scenario, neighbours, byzantine = self.files.scenario, self.neighbours, self.files.byzantine
        fractions = {
            str(client): len(byzantine.intersection(around)) / max(len(around), 1)
            for client, around in enumerate(neighbours)
            if client not in byzantine
        }
        num_components, reached = 0, set[int]()
        for client in range(len(neighbours)):
            if client not in reached:
                num_components += 1
                reached.update(hops_from([client], neighbours))
        return {
            "schema": SCHEMA,
            "name": scenario.name,
            "seed": scenario.seed,
            "rounds": scenario.rounds,
            "num_clients": len(neighbours),
            "byzantine": sorted(byzantine),
            "neighbourhood": {
                "byzantine_fraction": fractions,
                "outside_threat_model": [int(client) for client, share in fractions.items() if share >= 0.5],
                "isolated": [client for client, around in enumerate(neighbours) if not around],
                "num_components": num_components,
            },
        }

    def _from_records(self, summary: JsonObject, first: RunStarted, last: RunFinished) -> JsonObject:
        num_rounds = [state.num_rounds for state in self.clients.states]
        counts: Mapping[str, Any] = last
        evaluated = summary["telemetry"]["by_hops"]
        by_hops = {hops: means for hops, means in self.telemetry.by_hops().items() if hops in evaluated}
        return {
            "status": last["status"],
            "simulated_s": last["time_s"],
            "num_parameters": first["num_parameters"],
            "rounds_done": [min(num_rounds), max(num_rounds)],
            "num_faults": self.clients.timeline.num_records,
            "messages": {key: counts[key] for key in MESSAGE_COUNTS},
            "telemetry": {**self.telemetry.summary(), "by_hops": by_hops},
            **({"theory": self.theory.summary(summary["theory"])} if self.theory.points else {}),
        }


def _num_leaves(value: object) -> int:
    return sum(map(_num_leaves, value.values())) if isinstance(value, dict) else 1
