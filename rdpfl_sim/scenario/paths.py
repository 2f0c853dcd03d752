"""Values in nested TOML tables, addressed by paths such as `faults[0].at_s`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeAlias

from rdpfl_sim.errors import Problem, ScenarioError

TomlTable: TypeAlias = dict[str, Any]
"""A table as `tomllib` returns it, not validated."""

MAX_DEPTH = 50
INDEX = re.compile("[0-9]{1,9}")


def set_value(raw: TomlTable, path: str, value: object) -> None:
    """Set the value at a path and create missing tables."""
    steps = split_path(path)
    if len(steps) > MAX_DEPTH:
        raise ScenarioError([Problem("--set", f"a path has at most {MAX_DEPTH} keys", path)])
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
