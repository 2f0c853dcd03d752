"""Checks of the whole run: its end, digest, message counts and summary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from rdpfl_sim.records.digest import Digest
from rdpfl_sim.records.json_file import JsonObject, encode_json, first_difference
from rdpfl_sim.records.record_types import RunFinished, RunStarted
from rdpfl_sim.records.run_folder import SUMMARY
from rdpfl_sim.records.summary_file import MESSAGE_COUNTS, OUTCOMES
from rdpfl_sim.simulation.experiment import COARSE_TEST
from rdpfl_sim.simulation.provenance import RESUMED_ELSEWHERE
from rdpfl_sim.simulation.summary import (
    DISCARDED,
    DIVERGED,
    WALL,
    RunOutcome,
    summarise_run,
    warnings_of_messages,
    warnings_of_rounds,
)
from rdpfl_sim.verification.check import Check, Needs
from rdpfl_sim.verification.clients import ClientChecks
from rdpfl_sim.verification.files import VerifiedFolder
from rdpfl_sim.verification.messages import MessageChecks
from rdpfl_sim.verification.telemetry import RecomputedTelemetry
from rdpfl_sim.verification.theory import RecomputedTheory
from rdpfl_sim.world.adversary.threat_model import Neighbourhoods
from rdpfl_sim.world.faults.crash import TOO_FREQUENT

UNFINISHED = "the run has no summary"
OF_DATA = (COARSE_TEST, f"faults[{{}}]: {TOO_FREQUENT}", DIVERGED)
"""Warnings that depend on data and models, which `verify` does not load."""


class DigestCheck:
    """Recomputes the digest from the records."""

    def __init__(self) -> None:
        self.check = Check("digest", "The digest in summary.json matches the records.", Needs.RECORDS)
        self.checks = [self.check]
        self.digest = Digest()

    def add(self, line: bytes) -> None:
        """Add a record that the digest covers."""
        self.check.num_items += 1
        self.digest.add(line)

    def compare(self, summary: JsonObject | None) -> None:
        """Compare the digest with the one in the summary."""
        found = self.digest.value.hex()
        if summary is None or "digest" not in summary:
            self.check.unchecked = UNFINISHED
        elif summary["digest"] != found:
            recorded = str(summary["digest"])
            self.check.violated(None, f"the records have the digest {found[:16]}..., not {recorded[:16]}...")


class SummaryChecks:
    """Compares the summary with the records and with metrics.csv."""

    def __init__(self, files: VerifiedFolder) -> None:
        self.complete = Check(
            "complete", "The run has reached its end, and its records are not truncated.", Needs.NOTHING
        )
        self.accounts = Check(
            "accounts",
            "sent = delivered + lost + in flight; delivered = used + dropped + left over.",
            Needs.NOTHING,
        )
        self.counts = Check(
            "counts",
            "Records and summary.json have the same number of messages for every outcome.",
            Needs.ALL_MESSAGES,
        )
        self.summary_check = Check(
            "summary",
            "summary.json follows from scenario, records and metrics.csv.",
            Needs.NOTHING,
        )
        self.checks = [self.complete, self.accounts, self.counts, self.summary_check]
        self.files, self.scenario, self.deployment = files, files.scenario, files.deployment
        self.summary = files.summary if "messages" in (files.summary or {}) else None
        self.account = _account(self.summary)
        self.num_parameters = 0
        self.last: RunFinished | None = None
        """The last record, if the run has reached its end."""
        self._check_end()
        self._check_accounts()

    def run_started(self, record: RunStarted, line: int) -> None:
        """Store the number of parameters, which is also in the summary."""
        self.num_parameters = record["num_parameters"]

    def run_finished(self, record: RunFinished, line: int) -> None:
        """Store the totals of the run."""
        self.last = record

    def compare_counts(self, messages: MessageChecks) -> None:
        """Compare the numbers of messages in the records with the summary."""
        if self.account is None:
            self.counts.unchecked = UNFINISHED
            return
        account, counts = self.account, messages.counts
        found = {
            "sent": counts["sent"] + counts["copied"],
            **{outcome: counts[outcome] for outcome in ("copied", "delivered", "lost", *OUTCOMES)},
            "in_flight": len(messages.in_transit),
            "left_over": len(messages.in_mailbox),
            "reordered": messages.num_reordered,
        }
        for key, number in found.items():
            self.counts.num_items += 1
            if account.get(key) != number:
                self.counts.violated(None, f"messages.{key} is {account.get(key)}, not {number}")
        if self.scenario.network.transport.name == "datagram":  # other transports also count retries
            self.counts.num_items += 1
            slack = 0.0 if self.scenario.network.compression == 1 else 1.0 + 1e-9 * messages.num_bytes
            if abs(account["bytes"] - messages.num_bytes) > slack:
                self.counts.violated(None, f"messages.bytes is {account['bytes']}, not {messages.num_bytes}")

    def compare_summary(
        self,
        last_event: str | None,
        clients: ClientChecks,
        recomputed: RecomputedTelemetry,
        theory: RecomputedTheory,
        digest_check: DigestCheck,
    ) -> None:
        """Compare the summary with the expected one; `last_event` is None if there are no records."""
        if self.summary is None:
            self.summary_check.unchecked = UNFINISHED
            return
        if last_event not in (None, "run_finished"):
            self.summary_check.unchecked = "the records do not end with run_finished"
            return
        last = None if last_event is None else self.last
        try:
            found = self._summary(self.summary, last, clients, recomputed, theory, digest_check)
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            self.summary_check.violated(
                None, f"summary.json has an invalid structure ({type(error).__name__}: {error})"
            )
            return
        recorded = orjson.loads(self.files.reader.read_bytes(SUMMARY))
        found["accuracy"] = _common_statistics(recorded.get("accuracy"), found["accuracy"])
        self.summary_check.num_items += _num_leaves(recorded)
        difference = first_difference(recorded, orjson.loads(encode_json(found)))
        if difference is not None:
            self.summary_check.violated(None, difference)
        elif encode_json(recorded) != self.files.reader.read_bytes(SUMMARY):
            self.summary_check.violated(None, "summary.json is formatted differently")

    def _summary(
        self,
        recorded: JsonObject,
        last: RunFinished | None,
        clients: ClientChecks,
        recomputed: RecomputedTelemetry,
        theory: RecomputedTheory,
        digest_check: DigestCheck,
    ) -> JsonObject:
        """Return the expected summary; values that cannot be recomputed are copied from `recorded`."""
        num_rounds = [state.num_rounds for state in clients.states]
        neighbourhoods = Neighbourhoods.of(self.files.graph, self.files.byzantine)
        verdicts = recorded["theory"] if self.scenario.evaluation.theory else None
        if last is None:  # there are no records
            status, simulated_s = recorded["status"], recorded["simulated_s"]
            messages, telemetry, digest = recorded["messages"], recorded["telemetry"], recorded["digest"]
            num_rounds, num_faults = recorded["rounds_done"], recorded["num_faults"]
            num_parameters = recorded["num_parameters"]
        else:
            status, simulated_s, num_faults = last["status"], last["time_s"], clients.timeline.num_records
            messages, digest = _message_counts(last), digest_check.digest.value.hex()
            telemetry = recomputed.expected_telemetry(recorded["telemetry"])
            num_parameters = self.num_parameters
            verdicts = None if verdicts is None else theory.summary_beside(verdicts, num_rounds)
        outcome = RunOutcome(
            status=status,
            byzantine=sorted(self.files.byzantine),
            neighbourhoods=neighbourhoods,
            num_parameters=num_parameters,
            num_rounds=num_rounds,
            messages=messages,
            telemetry=telemetry,
            scores=recomputed.scores,
            theory=verdicts,
            num_faults=num_faults,
            simulated_s=simulated_s,
            wall={key: recorded["wall"][key] for key in WALL},
            digest=digest,
            warnings=self._warnings(recorded["warnings"], recomputed, None if last is None else num_rounds),
        )
        return summarise_run(self.scenario, outcome)

    def _warnings(
        self, recorded: list[str], recomputed: RecomputedTelemetry, num_rounds: list[int] | None
    ) -> list[str]:
        """Return the expected warnings; warnings about data and models are copied from `recorded`."""
        if self.deployment is None or num_rounds is None:
            return recorded
        unknown = [text for text in recorded if any(_matches(template, text) for template in OF_DATA)]
        resumed = [text for text in recorded if text.startswith(RESUMED_ELSEWHERE)]
        if recomputed.knows_messages:
            of_messages = warnings_of_messages(self.scenario, recomputed.telemetry)
        else:
            of_messages = [text for text in recorded if text.startswith(DISCARDED)]
        of_rounds = warnings_of_rounds(recomputed.telemetry, num_rounds)
        return [*self.deployment.warnings, *unknown, *of_messages, *of_rounds, *resumed]

    def compare_end(self, first_event: str | None, last_event: str | None, num_lines: int) -> None:
        """Check the first and the last record."""
        self.complete.num_items += 2
        if first_event != "run_started":
            self.complete.violated(1, "the first record is not run_started")
        if last_event != "run_finished":
            self.complete.violated(num_lines or None, "the last record is not run_finished")

    def _check_end(self) -> None:
        self.complete.num_items += 1
        summary = self.files.summary
        if summary is None:
            self.complete.violated(None, "there is no summary.json: the run is running or was killed")
        elif self.summary is None:
            self.complete.violated(None, f"the run is {summary.get('status')}: {summary.get('error')}")

    def _check_accounts(self) -> None:
        if self.summary is None:
            self.accounts.unchecked = UNFINISHED
            return
        if self.account is None:
            self.accounts.violated(None, "summary.json has no message counts")
            return
        n = self.account
        self.accounts.num_items += 2
        if n["sent"] != n["delivered"] + n["lost"] + n["in_flight"]:
            self.accounts.violated(None, f"{n['sent']} messages were sent")
        if n["delivered"] != sum(n[outcome] for outcome in OUTCOMES) + n["left_over"]:
            self.accounts.violated(None, f"{n['delivered']} messages were delivered")


def _account(summary: JsonObject | None) -> dict[str, int] | None:
    """Return the message counts of a summary, or None if they are missing or invalid."""
    account = None if summary is None else summary["messages"]
    if not isinstance(account, dict) or any(type(account.get(key)) is not int for key in MESSAGE_COUNTS):
        return None
    return account


def _message_counts(last: RunFinished) -> dict[str, int]:
    counts: Mapping[str, Any] = last
    return {key: counts[key] for key in MESSAGE_COUNTS}


def _common_statistics(recorded: Any, found: JsonObject) -> JsonObject:
    """Return the statistics that are also in the recorded summary; older versions have fewer."""
    if not isinstance(recorded, dict):
        return found
    return {
        key: _common_statistics(recorded.get(key), value) if isinstance(value, dict) else value
        for key, value in found.items()
        if key in recorded or isinstance(value, dict)
    }


def _matches(template: str, text: str) -> bool:
    """Return whether a text is an instance of a template."""
    pattern = r"[^ ]+".join(map(re.escape, template.split("{}")))
    return re.fullmatch(pattern, text) is not None


def _num_leaves(value: object) -> int:
    if isinstance(value, dict | list):
        return sum(map(_num_leaves, value.values() if isinstance(value, dict) else value))
    return 1
