"""JSON files of run and sweep folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import orjson

from rdpfl_sim.errors import RunError
from rdpfl_sim.system.files import open_inside

JsonObject: TypeAlias = dict[str, Any]
"""The content of a JSON file or a record, with types that depend on the file."""

MAX_BYTES = 1 << 29
"""Larger files are considered damaged. topology.json has about 50 bytes per link."""


def encode_json(content: Any) -> bytes:
    """Return the bytes of a JSON file, indented for human readers."""
    return orjson.dumps(
        content, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    )


def read_json(path: Path) -> JsonObject:
    """Return the table in a JSON file; raise `FileNotFoundError`, or `RunError` if it is damaged."""
    with open_inside(path) as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise RunError(f"{path} is damaged: it is larger than {MAX_BYTES >> 20} MiB")
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is damaged: it does not contain a table")
    return content


def read_json_if_present(path: Path) -> JsonObject | None:
    """Return the table in a JSON file, or None if the file does not exist."""
    try:
        return read_json(path)
    except FileNotFoundError:
        return None
