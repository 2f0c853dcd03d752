"""Read TOML files and command-line values; access nested values by paths such as `faults[0].at_s`.

Files and values are limited in size and depth, because they may come from untrusted sources.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from rdpfl_sim.components.schema import without_unit
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.files import open_input, open_inside

TomlTable: TypeAlias = dict[str, Any]
"""A table as `tomllib` returns it, not validated."""

MAX_BYTES = 64 << 20
MAX_BITS = 64
MAX_DEPTH = 50
INDEX = re.compile("[0-9]{1,9}")
_TOO_DEEP = f"tables and lists are nested more than {MAX_DEPTH} levels deep"


_LITERALS = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|\'{3}.*?\'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*''', re.DOTALL
)
"""Strings and comments of a TOML document."""


class LimitError(ValueError):
    """TOML that is too large or nested too deeply."""


class ValueSyntaxError(ValueError):
    """A value on the command line that is malformed or too large."""


def read_toml(path: Path, follow_links: bool = True) -> TomlTable:
    """Return the table in a TOML file; raise a `ScenarioError` with the reason if it cannot be read.

    Files inside a run folder are read with `follow_links=False`, because the folder may be untrusted.
    """
    try:
        with (open_input if follow_links else open_inside)(path) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise LimitError(f"the file is larger than {MAX_BYTES >> 20} MiB")
        text = content.decode("utf-8-sig")
        return parse_toml(text)
    except OSError as error:
        raise ScenarioError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([Problem(str(path), f"is not valid TOML: {_explain(text, error)}")]) from error
    except ValueError as error:
        raise ScenarioError([Problem(str(path), f"is not valid TOML: {error}")]) from error


def is_sweep(raw: TomlTable) -> bool:
    """Return whether a table is a sweep: a scenario has neither a base nor variations."""
    return not raw.keys().isdisjoint(("base", "grid", "axis", "profiles"))


def parse_toml(text: str) -> TomlTable:
    """Parse a TOML document; raise a `LimitError` if it is too large or nested too deeply."""
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
    """Parse a value from the command line: TOML, or a bare string if it is not valid TOML.

    Raise a `ValueSyntaxError` for anything after the value, for a table or a list that is not valid TOML, and
    for a value that is too large.
    """
    document = f"value = {text}"
    try:
        table = parse_toml(document)
    except tomllib.TOMLDecodeError as error:
        if text.lstrip().startswith(("{", "[")):
            raise ValueSyntaxError(f"is not valid TOML: {_explain(document, error)}") from error
        table = {"value": text.strip()} if len(text.strip().splitlines()) <= 1 else {}
    except LimitError as error:
        raise ValueSyntaxError(str(error)) from error
    if table.keys() != {"value"}:
        raise ValueSyntaxError("must be one value; set other keys separately")
    return table["value"]


def _explain(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Return the message of a syntax error; add the value to write for one with a unit, such as 20%.

    If the error is inside an inline table, add how these are written.
    """
    place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    end = len(text)
    if place is not None:
        line, column = int(place[1]), int(place[2])
        end = sum(len(each) for each in text.splitlines(keepends=True)[: line - 1]) + column - 1
    before = _LITERALS.sub("", text[:end])
    assigned = re.search(r"([\w-]+) *= *([0-9.]+) *$", before)
    unit = re.match(r" *(%|\w+)", text[end:])
    if assigned is not None and unit is not None:
        key, digits = assigned.groups()
        number = without_unit(key, digits + unit[1])
        if number is not None:
            return f"{error}; did you mean {key} = {number}?"
    if before.count("{") <= before.count("}"):
        return str(error)
    return (
        f"syntax error in an inline table: {error}; an inline table is written on one line, with = after "
        "keys and commas between entries: { name = 'noise', sigma = 3.0 }"
    )


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


def set_value(raw: TomlTable, path: str, value: object) -> None:
    """Set the value at a path and create missing tables."""
    steps = split_path(path)
    if len(steps) > MAX_DEPTH:
        raise ScenarioError([Problem("`overrides`", f"a path has at most {MAX_DEPTH} keys", path)])
    table: Any = raw
    for depth, (step, next_step) in enumerate(pairwise(steps), start=1):
        inner = table.setdefault(step, {}) if isinstance(table, dict) else table[step]
        if isinstance(inner, str):  # the short form of a component: its name
            inner = table[step] = {"name": inner}
        fits = isinstance(inner, list) if isinstance(next_step, int) else isinstance(inner, dict)
        if not fits or (isinstance(next_step, int) and next_step >= len(inner)):
            reason = f"has no entry [{next_step}]" if isinstance(next_step, int) else "is not a table"
            message = f"{reason}, so {path} cannot be set"
            raise ScenarioError([Problem(join_path(steps[:depth]), message, inner)])
        table = inner
    table[steps[-1]] = value


def get_value(raw: TomlTable, path: str) -> Any:
    """Return the value at a path, or None if there is none.

    >>> get_value({"faults": [{"at_s": 3.0}]}, "faults[0].at_s")
    3.0
    """
    value: object = raw
    for step in split_path(path):
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def split_path(path: str) -> list[str | int]:
    """Return the keys and indices of a path.

    >>> split_path("faults[0].at_s")
    ['faults', 0, 'at_s']
    """
    steps: list[str | int] = []
    for part in path.split("."):
        name, *indices = part.replace("]", "").split("[")
        steps += [name, *(int(index) if INDEX.fullmatch(index) else index for index in indices)]
    return steps


def join_path(steps: Iterable[int | str]) -> str:
    """Return the path with these keys and indices.

    >>> join_path(("faults", 0, "at_s"))
    'faults[0].at_s'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")


def leaves(value: object, location: tuple[int | str, ...] = ()) -> dict[str, object]:
    """Return all values in tables and in lists of tables, by path.

    >>> leaves({"model": {"hidden": [64]}, "faults": [{"at_s": 3.0}]})
    {'model.hidden': [64], 'faults[0].at_s': 3.0}
    """
    items: Iterable[tuple[int | str, object]]
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        items = enumerate(value)
    else:
        return {join_path(location): value}
    return {path: leaf for key, item in items for path, leaf in leaves(item, (*location, key)).items()}
