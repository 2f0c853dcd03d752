"""The schema of a run folder: the names and fields of its records and files.

A folder of another schema is refused; there is no code that reads older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from rdpfl_sim.errors import RunError, SchemaError
from rdpfl_sim.records.json_file import read_json_if_present
from rdpfl_sim.system.files import lines_inside
from rdpfl_sim.version import __version__

SCHEMA = 2
"""The schema that this version writes and reads; `run_started` and summary.json state it."""

UNSTATED = 1
"""The schema of folders that do not state one."""


def check_schema(folder: Path) -> None:
    """Raise `SchemaError` if another schema was used to write a run folder."""
    found = _written_schema(folder)
    if found not in (None, SCHEMA):
        raise SchemaError(
            f"{folder} was written by {_writer(folder)} (record schema {found}); "
            f"rdpfl-sim {__version__} reads schema {SCHEMA}"
        )


def _schema_of(content: Mapping[str, Any]) -> object:
    """Return the schema that a summary or the first record states."""
    return content.get("schema", UNSTATED)


def _written_schema(folder: Path) -> object:
    """Return the schema of a folder, or None if nothing that depends on it can be read."""
    with suppress(OSError, RunError):
        summary = read_json_if_present(folder / "summary.json")
        if summary is not None:
            return _schema_of(summary)
    with suppress(OSError, RunError, orjson.JSONDecodeError):
        first = orjson.loads(next(lines_inside(folder / "events.jsonl"), b"null"))
        if isinstance(first, dict) and first.get("event") == "run_started":
            return _schema_of(first)
    return None


def _writer(folder: Path) -> str:
    """Return the version that wrote a run folder, as its provenance states it."""
    with suppress(OSError, RunError, LookupError, TypeError):
        provenance = read_json_if_present(folder / "provenance.json") or {}
        return f"rdpfl-sim {provenance['sessions'][-1]['versions']['rdpfl-sim']}"
    return "another version of rdpfl-sim"
