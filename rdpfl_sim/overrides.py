"""Reading TOML, and changing single values in it by their paths."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from rdpfl_sim.errors import Problem, ScenarioError


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file, or a `ScenarioError` that says why there is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ScenarioError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError([Problem(str(path), f"is not valid TOML: {error}")]) from error


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Set `path.to.key=value`; the value is TOML, or else a bare string."""
    path, equals, text = override.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise ScenarioError([Problem("--set", "must look like path.to.key=value", override)])
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    set_value(raw, path.strip(), value)


def set_value(raw: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path, making tables on the way."""
    *parents, key = _steps(path)
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
    for step in _steps(path):
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _steps(path: str) -> list[str | int]:
    """The keys and indices of a path.

    >>> _steps("faults[0].at_s")
    ['faults', 0, 'at_s']
    """
    steps: list[str | int] = []
    for part in path.split("."):
        name, *indices = part.replace("]", "").split("[")
        steps += [name, *(int(index) if index.isdigit() else index for index in indices)]
    return steps


def dotted(location: tuple[int | str, ...]) -> str:
    """A path as people write it.

    >>> dotted(("faults", 0, "at_s"))
    'faults[0].at_s'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")
