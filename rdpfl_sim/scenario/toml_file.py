"""Reading TOML files and values, with limits on their size and depth, and writing values."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.scenario.paths import MAX_DEPTH, TomlTable, join_path
from rdpfl_sim.system.files import open_input, open_inside

MAX_BYTES = 64 << 20
MAX_BITS = 64
_TOO_DEEP = f"tables and lists are nested more than {MAX_DEPTH} levels deep"


class LimitError(ValueError):
    """TOML that is too large or nested too deeply."""


def read_toml(path: Path, follow_links: bool = True) -> TomlTable:
    """Return the table in a TOML file; raise a `ScenarioError` with the reason if that is not possible.

    Files inside a run folder are read with `follow_links=False`, because the folder may be untrusted.
    """
    try:
        with (open_input if follow_links else open_inside)(path) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise LimitError(f"the file is larger than {MAX_BYTES >> 20} MiB")
        return parse_toml(content.decode("utf-8-sig"))
    except OSError as error:
        raise ScenarioError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error
    except ValueError as error:
        raise ScenarioError([Problem(str(path), f"is not valid TOML: {error}")]) from error


def parse_toml(text: str) -> TomlTable:
    """Parse a TOML document; raise a `LimitError` if it exceeds what the rest of the program can handle."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # Python's limit on the digits of an integer
        raise LimitError("a number has thousands of digits") from error
    except RecursionError as error:
        raise LimitError(_TOO_DEEP) from error
    _check_limits(table)
    return table


def parse_value(text: str) -> object:
    """Parse a value from the command line: TOML, or a bare string if it is not valid TOML."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def to_toml(value: object) -> str:
    """Return a value as TOML, on one line.

    >>> to_toml({"name": "mlp", "hidden": [64], "bias": True})
    '{ name = "mlp", hidden = [64], bias = true }'
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {to_toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str)


def _check_limits(table: TomlTable) -> None:
    pending: list[tuple[tuple[int | str, ...], object]] = [((), table)]
    while pending:
        location, value = pending.pop()
        if isinstance(value, dict | list):
            if len(location) > MAX_DEPTH:
                raise LimitError(_TOO_DEEP)
            items = value.items() if isinstance(value, dict) else enumerate(value)
            pending += [((*location, key), item) for key, item in items]
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise LimitError(f"{join_path(location)} has {value.bit_length():,} bits; allowed: {MAX_BITS}")
