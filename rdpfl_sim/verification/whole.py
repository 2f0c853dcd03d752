"""What is true of a run as a whole: its end, its digest, its accounts, its summary."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from math import isclose
from typing import Any

from rdpfl_sim.records import summary as summaries
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.verification.check import Check, Needs, Record
from rdpfl_sim.verification.clients import Clients
from rdpfl_sim.verification.evaluations import Evaluations
from rdpfl_sim.verification.post import Post

FATES = ("used", "stale", "duplicate", "rejected")
UNFINISHED = "the run has no summary"


class Chain:
    """The digest of the records so far, as the recorder computes it."""

    def __init__(self) -> None:
        self.check = Check(
            "digest", "The digest in summary.json follows from the records, line by line.", Needs.RECORDS
        )
        self.checks = [self.check]
        self.value = b""

    def add(self, line: bytes) -> None:
        """Take a record in that is not about a single message."""
        self.check.num_items += 1
        self.value = blake2b(self.value + line, digest_size=32).digest()

    def compare(self, summary: dict[str, Any] | None) -> None:
        """Check the digest of a run that has ended."""
        if summary is None or "digest" not in summary:
            self.check.unchecked = UNFINISHED
        elif summary["digest"] != self.value.hex():
            self.check.violated(
                None, f"the records give {self.value.hex()[:16]}..., not {summary['digest'][:16]}..."
            )


class Whole:
    """Compares the records with the scenario, and at their end with the summary."""

    def __init__(
        self,
        scenario: Scenario,
        provenance: dict[str, Any] | None,
        topology: dict[str, Any],
        summary: dict[str, Any] | None,
    ) -> None:
        self.scenario_check = Check(
            "scenario",
            "scenario.toml has the hash that was noted at the start, and is what the records began with.",
            Needs.NOTHING,
        )
        self.complete = Check(
            "complete", "The run was brought to an end, and nothing of its records is cut off.", Needs.NOTHING
        )
        self.accounts = Check(
            "accounts",
            "sent = delivered + lost + in flight; delivered = used + dropped + left over.",
            Needs.NOTHING,
        )
        self.counts = Check(
            "counts", "The records hold as many messages of every fate as summary.json.", Needs.ALL_MESSAGES
        )
        self.summary_check = Check(
            "summary",
            "Status, accuracy, rounds and time in summary.json are those of the records.",
            Needs.RECORDS,
        )
        self.checks = [self.complete, self.scenario_check, self.accounts, self.counts, self.summary_check]
        self.scenario, self.topology = scenario, topology
        self.summary = summary if summary is not None and "messages" in summary else None
        self.events: list[str] = []
        self._check_hash(provenance)
        self._check_end(summary)
        self._check_accounts()

    def run_started(self, record: Record, line: int) -> None:
        """The records begin with what the scenario says."""
        self.scenario_check.num_items += 2
        if record["seed"] != self.scenario.seed:
            self.scenario_check.violated(line, f"the scenario's seed is {self.scenario.seed}")
        if record["byzantine"] != self.topology["byzantine"]:
            self.scenario_check.violated(line, "topology.json has other Byzantine clients")

    def compare_counts(self, post: Post) -> None:
        """Hold the messages of the records against the summary's."""
        if self.summary is None:
            self.counts.unchecked = UNFINISHED
            return
        account, counts = self.summary["messages"], post.counts
        found = {
            "sent": counts["sent"] + counts["copied"],
            **{fate: counts[fate] for fate in ("copied", "delivered", "lost", *FATES)},
            "in_flight": len(post.under_way),
            "left_over": len(post.waiting),
            "reordered": post.num_reordered,
        }
        for key, number in found.items():
            self._equal(self.counts, f"messages.{key}", account.get(key), number)
        if self.scenario.network.transport.name == "datagram":  # else repeats and acknowledgements count too
            self.counts.num_items += 1
            if not isclose(account["bytes"], post.num_bytes, rel_tol=1e-9, abs_tol=1.0):
                self.counts.violated(
                    None, f"messages.bytes is {account['bytes']}, in the records {post.num_bytes}"
                )

    def compare_summary(self, last: Record, line: int, clients: Clients, evaluations: Evaluations) -> None:
        """Hold the last record, and what came before it, against the summary."""
        if self.summary is None:
            self.summary_check.unchecked = UNFINISHED
            return
        lived = [life.num_rounds for life in clients.lives]
        rows = [row for _, row in sorted(evaluations.latest.items())]
        found = {
            "status": last.get("status"),
            "seed": self.scenario.seed,
            "rounds": self.scenario.rounds,
            "num_clients": len(lived),
            "byzantine": self.topology["byzantine"],
            "rounds_done": [min(lived), max(lived)],
            "num_faults": clients.num_faults,
            "simulated_s": last["time_s"],
            "accuracy": summaries.accuracy(rows),
        }
        for key, value in found.items():
            self._equal(self.summary_check, key, self.summary.get(key), value)
        for key, value in self.summary["messages"].items():
            self._equal(self.summary_check, f"messages.{key}", value, last.get(key), line)

    def compare_end(self, last: Record | None, line: int, starts_well: bool) -> None:
        """The records begin and end as they should."""
        self.complete.num_items += 2
        if not starts_well:
            self.complete.violated(1, "the first record is not run_started")
        if last is None or last["event"] != "run_finished":
            self.complete.violated(line or None, "the last record is not run_finished")

    def _check_hash(self, provenance: dict[str, Any] | None) -> None:
        self.scenario_check.num_items += 1
        if provenance is None:
            self.scenario_check.unchecked = "there is no provenance.json"
        elif provenance["scenario_hash"] != self.scenario.hash:
            told = f"noted {provenance['scenario_hash']}, found {self.scenario.hash}"
            self.scenario_check.violated(None, f"scenario.toml has another hash: {told}")
        if self.topology["num_clients"] != self.scenario.clients.count:
            self.scenario_check.violated(None, "topology.json has another number of clients")

    def _check_end(self, summary: dict[str, Any] | None) -> None:
        self.complete.num_items += 1
        if summary is None:
            self.complete.violated(None, "there is no summary.json: the run goes on, or was killed")
        elif self.summary is None:
            self.complete.violated(None, f"the run has {summary.get('status')}: {summary.get('error')}")

    def _check_accounts(self) -> None:
        if self.summary is None:
            self.accounts.unchecked = UNFINISHED
            return
        n: Counter[str] = Counter(self.summary["messages"])
        self.accounts.num_items += 2
        if n["sent"] != n["delivered"] + n["lost"] + n["in_flight"]:
            self.accounts.violated(None, f"{n['sent']} messages were sent")
        if n["delivered"] != sum(n[fate] for fate in FATES) + n["left_over"]:
            self.accounts.violated(None, f"{n['delivered']} messages were delivered")

    def _equal(self, check: Check, key: str, said: Any, found: Any, line: int | None = None) -> None:
        check.num_items += 1
        if said != found:
            check.violated(line, f"{key} is {said} in summary.json, {found} in the records")
