"""The format of records: the fields of every event, their types, and their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, TypeAlias

import orjson

from rdpfl_sim.records.json_file import encode_json
from rdpfl_sim.records.summary_file import MESSAGE_COUNTS, OUTCOMES
from rdpfl_sim.verification.check import Record

Types: TypeAlias = tuple[type, ...]
Fields: TypeAlias = Mapping[str, Types]

INTEGER, NUMBER, TEXT, LIST = (int,), (float,), (str,), (list,)
MAYBE_NUMBER = (float, NoneType)
START: Fields = {"event": TEXT, "time_s": NUMBER}
ROUND: Fields = {**START, "client": INTEGER, "round": INTEGER}
MESSAGE: Fields = {**START, "message": INTEGER, "sender": INTEGER, "recipient": INTEGER, "round": INTEGER}
INSPECTED: Fields = dict.fromkeys(("distance_to_own", "distance_to_predicted", "weight"), MAYBE_NUMBER)
SCORES = ("personal_accuracy", "personal_loss", "global_accuracy", "global_loss")

FIELDS: Mapping[str, Fields] = {
    "run_started": {**START, "seed": INTEGER, "num_parameters": INTEGER, "byzantine": LIST},
    "training_started": {**ROUND, "duration_s": NUMBER},
    "training_finished": {**ROUND, "loss": MAYBE_NUMBER, "num_steps": INTEGER},
    "round_finished": {**ROUND, "num_used": INTEGER, "max_age": (int, NoneType)},
    "evaluation": {**ROUND, **dict.fromkeys(SCORES, MAYBE_NUMBER)},
    "theory": {**ROUND, **dict.fromkeys(("loss", "gradient_norm", "L"), MAYBE_NUMBER)},
    "fault": {**START, "fault": INTEGER, "change": TEXT},
    "message_sent": {**MESSAGE, "true_round": INTEGER, "size_bytes": NUMBER},
    "message_copied": {**MESSAGE, "original": INTEGER},
    "message_lost": {**MESSAGE, "reason": TEXT},
    "message_delivered": {**MESSAGE, "delay_s": NUMBER},
    "message_used": {**MESSAGE, "age": INTEGER, "clipped": (bool, NoneType)},
    **{f"message_{outcome}": {**MESSAGE, "reason": TEXT} for outcome in OUTCOMES[1:]},
    "final_model": {**START, "client": INTEGER, "blake2b": TEXT},
    "run_finished": {**START, "status": TEXT, **dict.fromkeys(MESSAGE_COUNTS, INTEGER)},
}
"""The fields of every event in their order; a run writes no other records."""

OPEN = ("round_finished", "fault")
"""Events with additional fields: a method's diagnostics, and the parameters of a fault."""


class RecordFormat:
    """Checks the format of records. Most of them have a format that was checked before."""

    def __init__(self, inspects: bool) -> None:
        self.fields = dict(FIELDS)
        if inspects:
            used = dict(FIELDS["message_used"])
            clipped = used.pop("clipped")
            self.fields["message_used"] = {**used, **INSPECTED, "clipped": clipped}
        self.seen: set[tuple[Any, ...]] = set()

    def problem_of(self, record: Record, line: bytes) -> str | None:
        """Return why a run would not write this line, or None if it would."""
        form = (record["event"], *record, *map(type, record.values()))
        if form not in self.seen:
            reason = self._reason(record)
            if reason is not None:
                return reason
            self.seen.add(form)
        return (
            None
            if orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) == line
            else "it is encoded differently"
        )

    def _reason(self, record: Record) -> str | None:
        event = record["event"]
        fields = self.fields.get(event)
        if fields is None:
            return f"unknown event {event!r}"
        names = list(record)
        if names[: len(fields)] != list(fields) or (len(names) > len(fields) and event not in OPEN):
            return f"{event} has the fields {', '.join(fields)}, not {', '.join(names)}"
        for name, types in fields.items():
            if type(record[name]) not in types:
                return f"{name} = {record[name]!r} is not of type {' or '.join(map(_name, types))}"
        return None


def first_difference(said: Any, found: Any, path: str = "") -> str | None:
    """Return where two JSON values first differ and how, or None if they are equal."""
    if isinstance(said, dict) and isinstance(found, dict):
        for key in {**found, **said}:
            inner = f"{path}.{key}" if path else key
            if key not in found:
                return f"{inner} is unexpected"
            if key not in said:
                return f"{inner} is missing"
            difference = first_difference(said[key], found[key], inner)
            if difference is not None:
                return difference
        return None if list(said) == list(found) else f"{path or 'the table'} has its keys in another order"
    return None if encode_json(said) == encode_json(found) else f"{path} is {said!r}, should be {found!r}"


def _name(kind: type) -> str:
    return "null" if kind is NoneType else kind.__name__
