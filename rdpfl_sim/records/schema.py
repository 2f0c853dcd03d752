"""The schema of a run folder: the names and fields of its records and files.

A folder with a different schema is rejected; older schemas are not supported.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import orjson

from rdpfl_sim.errors import RunError, SchemaError
from rdpfl_sim.files import lines_inside, read_json_if_present
from rdpfl_sim.records.files import EVENTS, PROVENANCE, SUMMARY
from rdpfl_sim.version import __version__

SCHEMA = 3
"""The schema that this version writes and reads; stored in `run_started` and summary.json."""

UNSTATED = 1
"""The schema of folders without a stored schema."""


def check_schema(folder: Path) -> None:
    """Raise `SchemaError` if a run folder has a different schema."""
    found = _written_schema(folder)
    if found not in (None, SCHEMA):
        raise SchemaError(
            f"{folder} was written by {_writer(folder)} (record schema {found}); "
            f"rdpfl-sim {__version__} reads schema {SCHEMA}"
        )


def _written_schema(folder: Path) -> object:
    """Return the schema of a folder, or None if neither its summary nor its first record can be read."""
    with suppress(OSError, RunError):
        summary = read_json_if_present(folder / SUMMARY)
        if summary is not None:
            return summary.get("schema", UNSTATED)
    with suppress(OSError, RunError, orjson.JSONDecodeError):
        first = orjson.loads(next(lines_inside(folder / EVENTS), b"null"))
        if isinstance(first, dict) and first.get("event") == "run_started":
            return first.get("schema", UNSTATED)
    return None


def _writer(folder: Path) -> str:
    """Return the version that wrote a run folder, according to its provenance."""
    with suppress(OSError, RunError, LookupError, TypeError):
        provenance = read_json_if_present(folder / PROVENANCE) or {}
        return f"rdpfl-sim {provenance['sessions'][-1]['versions']['rdpfl-sim']}"
    return "a different version of rdpfl-sim"
