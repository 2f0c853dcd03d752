"""The form of records and files: the fields of every event, their types, and the bytes that a run writes."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, TypeAlias

import orjson

from rdpfl_sim.verification.check import Record

Types: TypeAlias = tuple[type, ...]
Fields: TypeAlias = Mapping[str, Types]

WHOLE, NUMBER, TEXT, LIST = (int,), (float,), (str,), (list,)
MAYBE_NUMBER = (float, NoneType)
START: Fields = {"event": TEXT, "time_s": NUMBER}
ROUND: Fields = {**START, "client": WHOLE, "round": WHOLE}
MESSAGE: Fields = {**START, "message": WHOLE, "sender": WHOLE, "recipient": WHOLE, "round": WHOLE}
INSPECTED: Fields = dict.fromkeys(("distance_to_own", "distance_to_predicted", "weight"), MAYBE_NUMBER)
ACCOUNT = (
    *("sent", "delivered", "lost", "in_flight", "used", "stale", "duplicate", "rejected"),
    *("left_over", "copied", "reordered", "bytes"),
)
SCORES = ("personal_accuracy", "personal_loss", "global_accuracy", "global_loss")

FIELDS: Mapping[str, Fields] = {
    "run_started": {**START, "seed": WHOLE, "num_parameters": WHOLE, "byzantine": LIST},
    "training_started": {**ROUND, "duration_s": NUMBER},
    "training_finished": {**ROUND, "loss": MAYBE_NUMBER, "num_steps": WHOLE},
    "round_finished": {**ROUND, "num_used": WHOLE, "max_age": (int, NoneType)},
    "evaluation": {**ROUND, **dict.fromkeys(SCORES, MAYBE_NUMBER)},
    "theory": {**ROUND, **dict.fromkeys(("loss", "gradient_norm", "L"), MAYBE_NUMBER)},
    "fault": {**START, "fault": WHOLE, "change": TEXT},
    "message_sent": {**MESSAGE, "true_round": WHOLE, "size_bytes": NUMBER},
    "message_copied": {**MESSAGE, "original": WHOLE},
    "message_lost": {**MESSAGE, "reason": TEXT},
    "message_delivered": {**MESSAGE, "delay_s": NUMBER},
    "message_used": {**MESSAGE, "age": WHOLE, "clipped": (bool, NoneType)},
    **{f"message_{fate}": {**MESSAGE, "reason": TEXT} for fate in ("stale", "duplicate", "rejected")},
    "final_model": {**START, "client": WHOLE, "blake2b": TEXT},
    "run_finished": {**START, "status": TEXT, **dict.fromkeys(ACCOUNT, WHOLE)},
}
"""The fields of every kind of record, in their order; what a run can write, and nothing else."""

OPEN = ("round_finished", "fault")
"""Records with more fields: what the method reports of a round, and how a fault changes the world."""


class Forms:
    """Says what is wrong with the form of a record. Most have a form that was seen before."""

    def __init__(self, inspects: bool) -> None:
        self.fields = dict(FIELDS)
        if inspects:
            used = dict(FIELDS["message_used"])
            clipped = used.pop("clipped")
            self.fields["message_used"] = {**used, **INSPECTED, "clipped": clipped}
        self.seen: set[tuple[Any, ...]] = set()

    def fault_of(self, record: Record, line: bytes) -> str | None:
        """Why this line is not one that a run writes, or None if it is."""
        form = (record["event"], *record, *map(type, record.values()))
        if form not in self.seen:
            reason = self._reason(record)
            if reason is not None:
                return reason
            self.seen.add(form)
        return None if orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) == line else "other bytes"

    def _reason(self, record: Record) -> str | None:
        event = record["event"]
        fields = self.fields.get(event)
        if fields is None:
            return f"there is no event {event!r}"
        names = list(record)
        if names[: len(fields)] != list(fields) or (len(names) > len(fields) and event not in OPEN):
            return f"{event} has the fields {', '.join(fields)}, not {', '.join(names)}"
        for name, types in fields.items():
            if type(record[name]) not in types:
                return f"{name} = {record[name]!r} is not of type {' or '.join(map(_name, types))}"
        return None


def written(content: Any) -> bytes:
    """A JSON file as a run folder holds it."""
    return orjson.dumps(
        content, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    )


def first_difference(said: Any, found: Any, path: str = "") -> str | None:
    """Where two JSON values differ first, and how; None if they are the same."""
    if isinstance(said, dict) and isinstance(found, dict):
        for key in {**found, **said}:
            inner = f"{path}.{key}" if path else key
            if key not in found:
                return f"{inner} should not be there"
            if key not in said:
                return f"{inner} is missing"
            told = first_difference(said[key], found[key], inner)
            if told is not None:
                return told
        return None if list(said) == list(found) else f"{path or 'the keys'} has another order"
    return None if written(said) == written(found) else f"{path} is {said!r}, should be {found!r}"


def _name(kind: type) -> str:
    return "null" if kind is NoneType else kind.__name__
