"""A scenario that is changed by paths, and what its tables lose on the way.

A table that is replaced loses the keys that it had, and they fall back to their defaults. A component that
gets another name keeps the options that the new one has, too. Neither happens without a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Annotated, Any, get_args, get_origin

from pydantic import ValidationError

from rdpfl_sim.components.registry import OneOf, Strict
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.scenario.overrides import get_value, leaves, parse_override, set_value, steps


class Draft:
    """The raw table of a scenario while it is changed; `schema` says what it may hold."""

    def __init__(self, schema: type[Strict], raw: dict[str, Any]) -> None:
        self.schema = schema
        self.raw = raw
        self.overrides: dict[str, Any] = {}
        """Of the command line, by path."""
        self._stated = leaves(raw)
        self._dropped: list[str] = []

    def override(self, text: str) -> None:
        """Apply `path.to.key=value` of the command line; what it undoes of an earlier one is a mistake."""
        path, value = parse_override(text)
        self.set(path, value)
        self.overrides.pop(path, None)  # the last one counts
        undone = [
            Problem(earlier, f"has no effect: --set {path}=..., which comes later, replaces it", given)
            for earlier, given in self.lost_overrides()
        ]
        if undone:
            raise ScenarioError(undone)
        self.overrides[path] = deepcopy(value)  # a table is changed in place

    def set(self, path: str, value: Any) -> None:
        """Set the value at a dotted path; a new `name` keeps the options that both components have."""
        parent, _, key = path.rpartition(".")
        if parent and key == "name":
            self._dropped += self._rename(parent, value)
        set_value(self.raw, path, value)
        self._stated |= leaves(self.raw)

    def lost_overrides(self) -> list[tuple[str, Any]]:
        """Return the overrides, with their values, of which something does not hold any more."""
        return [(path, value) for path, value in self.overrides.items() if not self._holds(path, value)]

    def notes(self, resolved: Mapping[str, Any]) -> list[str]:
        """Return what was lost, in words; `resolved` is the scenario with all defaults."""
        return [*dict.fromkeys(self._dropped), *self.fallen_back(resolved)]

    def _holds(self, path: str, value: Any) -> bool:
        if isinstance(value, dict):
            return all(self._holds(f"{path}.{key}", item) for key, item in value.items())
        found = get_value(self.raw, path)
        if isinstance(value, str) and isinstance(found, dict):  # the short form of a component
            found = found.get("name")
        return bool(found is value or found == value)

    def _rename(self, path: str, name: Any) -> Iterator[str]:
        """Take out the options of a component that one with another name does not have, and name them."""
        table, choice = get_value(self.raw, path), choice_at(self.schema, self.raw, path)
        if not isinstance(table, dict) or choice is None:
            return
        old, names = str(table.get("name", choice.default)), choice.names()
        if old == name or old not in names or name not in names:  # unknown ones are rejected later
            return
        had, new = choice.table(old).keys(), choice.table(name)
        has = new.keys()
        for key in [key for key in table if key in had and key != "name"]:
            if key not in has:
                yield f"{path}.{key} = {_toml(table.pop(key))} is dropped: {name} has no such option"
            elif not _fits(new, name, key, table[key]):
                yield f"{path}.{key} = {_toml(table.pop(key))} is dropped: {name} does not allow this value"

    def fallen_back(self, resolved: Mapping[str, Any]) -> Iterator[str]:
        """Yield a note on every key that was stated once and has its default now."""
        adversary = resolved.get("adversary")
        if isinstance(adversary, dict) and isinstance(self.raw.get("adversary"), list):
            resolved = {**resolved, "adversary": [adversary]}
        now, final = leaves(self.raw), leaves(resolved)
        for path, value in self._stated.items():
            forms = (path, f"{path}.name", path.removesuffix(".name"))  # a component's short form is its name
            key = path if path in final else f"{path}.name"
            if not any(form in now for form in forms) and key in final and final[key] != value:
                yield (
                    f"{path} fell back from {_toml(value)} to its default {_toml(final[key])}, "
                    "because its table was replaced"
                )


def reject_overrides(overrides: Mapping[str, Any], reserved: Mapping[str, str]) -> None:
    """Raise a `ScenarioError` if an override sets a path that is reserved, with the reason that it has."""
    given = {path: leaf for top, value in overrides.items() for path, leaf in leaves(value, (top,)).items()}
    problems = [
        Problem(path, f"has no effect: {reserved[path]}", leaf)
        for path, leaf in given.items()
        if path in reserved
    ]
    if problems:
        raise ScenarioError(problems)


def choice_at(schema: type[Strict], raw: Mapping[str, Any], path: str) -> OneOf | None:
    """Return the choice that stands at a path, if there is a component.

    >>> from rdpfl_sim.scenario.scenario import Scenario
    >>> choice_at(Scenario, {}, "network.latency").kind
    'latency'
    """
    kind: Any = schema
    value: Any = raw
    for step in steps(path):
        kind = _inside(kind, value, step)
        inner = value.get(step) if isinstance(value, dict) else None
        value = value[step] if isinstance(value, list) and isinstance(step, int) else inner
    return kind if isinstance(kind, OneOf) else None


def _inside(kind: Any, value: Any, step: str | int) -> Any:
    """Return what a key, or a place in a list, of something may hold."""
    if get_origin(kind) is list:
        kind = _choice_or_type(*get_args(kind))
        if isinstance(step, int):
            return kind  # a key belongs to a single table that stands in place of a list
    if isinstance(kind, OneOf):
        name = value.get("name", kind.default) if isinstance(value, dict) else value
        kind = kind.table(name) if name in kind.names() else None
    if not isinstance(kind, type) or not issubclass(kind, Strict):
        return None
    for name, field in kind.model_fields.items():
        if step == (field.alias or name):
            return _choice_or_type(field.annotation, *field.metadata)
    return None


def _choice_or_type(annotation: Any, *marks: Any) -> Any:
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        marks = (*inner, *marks)
    return next((mark for mark in marks if isinstance(mark, OneOf)), annotation)


def _fits(table: type[Strict], name: str, key: str, value: Any) -> bool:
    """Return whether a component allows a value of one of its options."""
    try:
        table.model_validate({"name": name, key: value})
    except ValidationError as error:
        return all(problem["loc"][:1] != (key,) for problem in error.errors())
    return True


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
