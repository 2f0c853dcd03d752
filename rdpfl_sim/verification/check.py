"""An invariant of a run, the number of items checked, and its first violation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import isclose, isfinite
from typing import Any, TypeAlias

from rdpfl_sim.files import JsonObject


class Needs(IntEnum):
    """The records that a check requires; each level includes those before it."""

    NOTHING = 0
    RECORDS = 1
    MESSAGES = 2
    ALL_MESSAGES = 3


MISSING = {
    Needs.RECORDS: "there are no records (events.jsonl is missing, or output.events is false)",
    Needs.MESSAGES: "there are no records of messages (output.message_events is 0)",
    Needs.ALL_MESSAGES: "only some messages are recorded (output.message_events is less than 1)",
}


INVARIANTS = {
    "form": (Needs.RECORDS, "Every line is a record with all of its fields."),
    "time": (Needs.RECORDS, "Simulated time never decreases."),
    "complete": (Needs.NOTHING, "The run has reached its end, and its records are not truncated."),
    "scenario": (Needs.NOTHING, "Scenario, topology, provenance and first record agree."),
    "digest": (Needs.RECORDS, "The digest in summary.json matches the records."),
    "conservation": (
        Needs.NOTHING,
        "Counts add up: sent to delivered, lost, in flight; delivered to outcomes.",
    ),
    "counts": (Needs.ALL_MESSAGES, "Records and summary have the same number of messages for every outcome."),
    "summary": (Needs.NOTHING, "The numbers in summary.json follow from records and metrics.csv."),
    "rounds": (Needs.RECORDS, "Clients train, wait and finish their rounds in order, without gaps."),
    "faults": (Needs.RECORDS, "A stopped client does nothing; a fault ends only after it started."),
    "outcomes": (
        Needs.MESSAGES,
        "A message is sent, then lost or delivered, then used or dropped; all once.",
    ),
    "causality": (Needs.MESSAGES, "No message arrives before it is sent; its delay is the time in between."),
    "links": (Needs.MESSAGES, "Messages go to neighbours, across no partition, to and from running clients."),
    "stamps": (Needs.MESSAGES, "An honest client sends when its training ends, with its current round."),
    "reasons": (Needs.ALL_MESSAGES, "The reason for a lost or dropped message fits its link or mailbox."),
    "use": (Needs.ALL_MESSAGES, "A round uses the preferred message of every sender in the mailbox."),
    "ages": (Needs.MESSAGES, "No used message is older than the scenario allows; its age is correct."),
    "waiting": (Needs.ALL_MESSAGES, "Honest clients wait for enough messages, but not past their timeout."),
    "weights": (Needs.MESSAGES, "Used messages have weights; none is negative, the sum is at most 1."),
    "estimates": (Needs.RECORDS, "A finished round has at most one estimate, before its model is needed."),
    "lemma 3": (Needs.RECORDS, "Every round has a norm of d, which is at most G_d."),
    "evaluations": (Needs.RECORDS, "Clients are evaluated when due; metrics.csv agrees with the records."),
    "models": (Needs.NOTHING, "Saved models fit the scenario's model; final ones have the recorded hashes."),
    "replay": (Needs.NOTHING, "Repeating the scenario gives the same files."),
}
"""What each check requires, and its invariant, in the order of the table. The last is made by a replay."""


@dataclass
class Check:
    """An invariant and its outcome; `unchecked` is the reason why it could not be checked."""

    name: str
    num_items: int = 0
    num_violations: int = 0
    line: int | None = None
    """The line of events.jsonl with the first violation, if it is in that file."""
    first: str | None = None
    unchecked: str | None = None

    def violated(self, line: int | None, what: str) -> None:
        """Count a violation and keep the description of the first."""
        self.num_violations += 1
        if self.first is None:
            self.line, self.first = line, what

    def limit(self, available: Needs) -> None:
        """Discard the outcome if the run did not write the records that the check requires."""
        needs, _ = INVARIANTS[self.name]
        missing = [MISSING[level] for level in MISSING if available < level <= needs]
        if missing:
            self.unchecked, self.first, self.line = missing[0], None, None
            self.num_items = self.num_violations = 0

    @property
    def outcome(self) -> str:
        """`ok`, `violated` or `not checked`."""
        if self.num_violations:
            return "violated"
        return "ok" if self.unchecked is None else "not checked"

    def as_dict(self) -> JsonObject:
        """Return the check as a JSON table."""
        return {
            "check": self.name,
            "sentence": INVARIANTS[self.name][1],
            "items": self.num_items,
            "outcome": self.outcome,
            "violations": self.num_violations,
            "line": self.line,
            "what": self.unchecked if self.first is None else self.first,
        }


Checks: TypeAlias = Mapping[str, Check]
"""All checks of a run by name."""

TOLERANCES = dict.fromkeys(("p50", "p90", "p99"), 0.07)
"""Relative tolerances of values that are approximate; other values differ by rounding only."""


def difference(
    found: Mapping[str, Any], expected: Mapping[str, Any], path: str = "", exact: bool = False
) -> str | None:
    """Return the first difference of two JSON tables as text, or None.

    Unless `exact`, numbers may differ by their tolerance, and other keys than the expected are ignored.
    """
    for key in {**expected, **found} if exact else expected:
        where = f"{path}.{key}" if path else key
        if key not in found or key not in expected:
            return f"{where} is {'missing' if key in expected else 'unexpected'}"
        one, other = found[key], expected[key]
        if isinstance(one, dict) and isinstance(other, dict):
            inner = difference(one, other, where, exact)
            if inner is not None:
                return inner
        elif one != other if exact else not _is_close(one, other, TOLERANCES.get(key, 1e-9)):
            return f"{where} is {one!r}, should be {other!r}"
    return None


def _is_close(found: object, expected: object, tolerance: float) -> bool:
    if isinstance(found, float) and not isfinite(found):
        return expected is None  # records have null instead of NaN and infinity
    if isinstance(expected, float) and isinstance(found, int | float):
        return isclose(found, expected, rel_tol=tolerance, abs_tol=1e-12)
    return found == expected
