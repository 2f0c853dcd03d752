"""One invariant: what it says, how often it was looked at, and where it was first violated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]


class Needs(IntEnum):
    """What a run must have written down for a check to be possible; each includes those before it."""

    NOTHING = 0
    RECORDS = 1
    MESSAGES = 2
    ALL_MESSAGES = 3


MISSING = {
    Needs.RECORDS: "there are no records (no events.jsonl, or output.events is false)",
    Needs.MESSAGES: "there are no records of messages (output.message_events is 0)",
    Needs.ALL_MESSAGES: "only a part of the messages is recorded (output.message_events is less than 1)",
}


@dataclass
class Check:
    """An invariant and what became of it; `unchecked` says why it could not be looked at."""

    name: str
    sentence: str
    needs: Needs
    num_items: int = 0
    num_violations: int = 0
    line: int | None = None
    """The line of events.jsonl at which it was first violated, if it is one."""
    first: str | None = None
    unchecked: str | None = None

    def violated(self, line: int | None, what: str) -> None:
        """Count a violation; the first is told."""
        self.num_violations += 1
        if self.first is None:
            self.line, self.first = line, what

    def limit(self, there_is: Needs) -> None:
        """Forget the outcome if the run has not written down what it would need."""
        missing = [MISSING[level] for level in MISSING if there_is < level <= self.needs]
        if missing:
            self.unchecked, self.first, self.line = missing[0], None, None
            self.num_items = self.num_violations = 0

    @property
    def outcome(self) -> str:
        """One word, or two."""
        if self.num_violations:
            return "violated"
        return "ok" if self.unchecked is None else "not checked"

    def told(self) -> dict[str, Any]:
        """The check as JSON."""
        return {
            "check": self.name,
            "sentence": self.sentence,
            "items": self.num_items,
            "outcome": self.outcome,
            "violations": self.num_violations,
            "line": self.line,
            "what": self.unchecked if self.first is None else self.first,
        }
