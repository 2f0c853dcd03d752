"""Reading TOML, and changing single values in it by their paths."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.system.files import open_input, open_inside

MAX_BYTES = 64 << 20
MAX_DEPTH = 50
INDEX = re.compile("[0-9]{1,9}")
_TOO_DEEP = f"tables and lists are nested in more than {MAX_DEPTH} levels"


class LimitError(ValueError):
    """TOML that is too large or too deep."""


def read_toml(path: Path, is_inside: bool = False) -> dict[str, Any]:
    """The table in a TOML file, or a `ScenarioError` that says why there is none.

    A file inside a run folder (`is_inside`) is not read through a link.
    """
    try:
        with (open_inside if is_inside else open_input)(path) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
        return parse_toml(content.decode("utf-8-sig"))
    except OSError as error:
        raise ScenarioError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error
    except ValueError as error:
        raise ScenarioError([Problem(str(path), f"is not valid TOML: {error}")]) from error


def parse_toml(text: str) -> dict[str, Any]:
    """The table in a TOML text; a `LimitError` if the rest of the program could not handle it."""
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


def parse_value(text: str) -> Any:
    """The value that a text on the command line stands for: TOML, or else a bare string."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _check_limits(table: dict[str, Any]) -> None:
    """Raise a `LimitError` at deep nesting and at integers that are larger than TOML allows."""
    rest: list[tuple[tuple[int | str, ...], Any]] = [((), table)]
    while rest:
        path, value = rest.pop()
        if isinstance(value, dict | list):
            if len(path) > MAX_DEPTH:
                raise LimitError(_TOO_DEEP)
            items = value.items() if isinstance(value, dict) else enumerate(value)
            rest += [((*path, key), item) for key, item in items]
        elif isinstance(value, int) and value.bit_length() > 64:
            raise LimitError(f"{dotted(path)} has {value.bit_length():,} bits; allowed: 64")


def parse_override(override: str) -> tuple[str, Any]:
    """Return the path and the value of `path.to.key=value`; the value is TOML, or else a bare string.

    >>> parse_override("method.lambda=0.5")
    ('method.lambda', 0.5)
    """
    path, equals, text = override.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise ScenarioError([Problem("--set", "must look like path.to.key=value", override)])
    try:
        value = parse_value(text)
    except LimitError as error:
        raise ScenarioError([Problem(path.strip(), str(error), text)]) from error
    return path.strip(), value


def set_value(raw: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path, making tables on the way."""
    *parents, key = steps(path)
    if len(parents) >= MAX_DEPTH:
        raise ScenarioError([Problem("--set", f"a path has at most {MAX_DEPTH} keys", path)])
    table: Any = raw
    for depth, step in enumerate(parents, start=1):
        following = table.setdefault(step, {}) if isinstance(table, dict) else table[step]
        if isinstance(following, str):  # the short form of a component: its name
            following = table[step] = {"name": following}
        wanted = [*parents, key][depth]
        fits = isinstance(following, list) if isinstance(wanted, int) else isinstance(following, dict)
        if not fits or (isinstance(wanted, int) and wanted >= len(following)):
            kind = f"has no entry [{wanted}]" if isinstance(wanted, int) else "is not a table"
            message = f"{kind}, so {path} cannot be set"
            raise ScenarioError([Problem(dotted(tuple(parents[:depth])), message, following)])
        table = following
    table[key] = value


def get_value(raw: dict[str, Any], path: str) -> Any:
    """The value at a dotted path, or None.

    >>> get_value({"faults": [{"at_s": 3.0}]}, "faults[0].at_s")
    3.0
    """
    value: Any = raw
    for step in steps(path):
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def steps(path: str) -> list[str | int]:
    """The keys and indices of a path.

    >>> steps("faults[0].at_s")
    ['faults', 0, 'at_s']
    """
    steps: list[str | int] = []
    for part in path.split("."):
        name, *indices = part.replace("]", "").split("[")
        steps += [name, *(int(index) if INDEX.fullmatch(index) else index for index in indices)]
    return steps


def leaves(raw: Any, location: tuple[int | str, ...] = ()) -> dict[str, Any]:
    """Return all values in tables and in lists of tables by their paths.

    >>> leaves({"model": {"hidden": [64]}, "faults": [{"at_s": 3.0}]})
    {'model.hidden': [64], 'faults[0].at_s': 3.0}
    """
    if isinstance(raw, dict):
        inside: Any = raw.items()
    elif isinstance(raw, list) and raw and all(isinstance(item, dict) for item in raw):
        inside = enumerate(raw)
    else:
        return {dotted(location): raw}
    return {path: leaf for key, item in inside for path, leaf in leaves(item, (*location, key)).items()}


def dotted(location: tuple[int | str, ...]) -> str:
    """A path as people write it.

    >>> dotted(("faults", 0, "at_s"))
    'faults[0].at_s'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")
