"""Lines of events.jsonl with all fields of their record."""

from types import UnionType
from typing import Any, get_origin, get_type_hints

import orjson

from rdpfl_sim.records.record_types import RECORDS


def record_line(event: str, time_s: float = 1.0, **fields: Any) -> bytes:
    """Return the line of a record; required fields that are not given are null, zero or empty."""
    kind = RECORDS[event]
    required = {
        name: None if isinstance(hint, UnionType) else (get_origin(hint) or hint)()
        for name, hint in get_type_hints(kind).items()
        if name in kind.__required_keys__  # type: ignore[attr-defined]
    }
    return orjson.dumps({**required, **fields, "event": event, "time_s": time_s})
