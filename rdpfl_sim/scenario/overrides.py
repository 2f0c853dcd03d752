"""Change values of a scenario by path, with a note on every setting that is lost.

Replacing a table resets its previous keys to their defaults. Renaming a component keeps the options that
the new component also has. Both produce notes, which become warnings of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Annotated, get_args, get_origin

from pydantic import ValidationError

from rdpfl_sim.components.schema import OneOf, Strict
from rdpfl_sim.errors import PluginError, Problem, ScenarioError
from rdpfl_sim.toml import (
    TomlTable,
    ValueSyntaxError,
    get_value,
    leaves,
    parse_value,
    set_value,
    split_path,
    to_toml,
)


def parse_override(override: str) -> tuple[str, object]:
    """Return the path and the value of `path.to.key=value`.

    >>> parse_override("method.lambda=0.5")
    ('method.lambda', 0.5)
    """
    path, equals, text = override.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")):
        raise ScenarioError([Problem("`overrides`", "must have the form path.to.key=value", override)])
    try:
        return path, parse_value(text)
    except ValueSyntaxError as error:
        raise ScenarioError([Problem(path, str(error), text)]) from error


def reject_overrides(overrides: Mapping[str, object], reserved: Mapping[str, str]) -> None:
    """Raise a `ScenarioError` if an override sets a reserved path; `reserved` maps paths to reasons."""
    given = {path: leaf for top, value in overrides.items() for path, leaf in leaves(value, (top,)).items()}
    problems = [
        Problem(path, f"has no effect: {reserved[path]}", leaf)
        for path, leaf in given.items()
        if path in reserved
    ]
    if problems:
        raise ScenarioError(problems)


class Draft:
    """The unvalidated table of a scenario while it is being changed; `schema` describes valid tables."""

    def __init__(self, schema: type[Strict], raw: TomlTable) -> None:
        self.schema = schema
        self.raw = raw
        self.overrides: dict[str, object] = {}
        """Overrides from the command line, by path."""
        self._stated = leaves(raw)
        self._dropped: list[str] = []

    def override(self, text: str) -> None:
        """Apply `path.to.key=value`; raise a `ScenarioError` if it undoes an earlier override."""
        path, value = parse_override(text)
        self.set(path, value)
        self.overrides.pop(path, None)  # for the same path, the last override counts
        undone = [
            Problem(earlier, f"has no effect: the later `overrides` {path}=... replaces it", given)
            for earlier, given in self.lost_overrides()
        ]
        if undone:
            raise ScenarioError(undone)
        self.overrides[path] = deepcopy(value)  # later overrides may change a table in place

    def set(self, path: str, value: object) -> None:
        """Set the value at a path; a new `name` keeps the options that both components have."""
        parent, _, key = path.rpartition(".")
        if parent and key == "name":
            self._dropped += self._rename(parent, value)
        set_value(self.raw, path, value)
        self._stated |= leaves(self.raw)

    def lost_overrides(self) -> list[tuple[str, object]]:
        """Return the overrides that are no longer fully in effect, with their values."""
        return [(path, value) for path, value in self.overrides.items() if not self._holds(path, value)]

    def notes(self, resolved: TomlTable) -> list[str]:
        """Return one note per lost setting; `resolved` is the scenario with all defaults filled in."""
        return [*dict.fromkeys(self._dropped), *self.reset_notes(resolved)]

    def reset_notes(self, resolved: TomlTable) -> Iterator[str]:
        """Yield a note for each key that was reset to its default."""
        adversary = resolved.get("adversary")
        if isinstance(adversary, dict) and isinstance(self.raw.get("adversary"), list):
            resolved = {**resolved, "adversary": [adversary]}
        now, final = leaves(self.raw), leaves(resolved)
        for path, value in self._stated.items():
            forms = (path, f"{path}.name", path.removesuffix(".name"))  # a component's short form is its name
            key = path if path in final else f"{path}.name"
            if not any(form in now for form in forms) and key in final and final[key] != value:
                yield (
                    f"{path} was reset from {to_toml(value)} to its default {to_toml(final[key])}, "
                    "because its table was replaced"
                )

    def _holds(self, path: str, value: object) -> bool:
        if isinstance(value, dict):
            return all(self._holds(f"{path}.{key}", item) for key, item in value.items())
        found = get_value(self.raw, path)
        if isinstance(value, str) and isinstance(found, dict):  # the short form of a component
            found = found.get("name")
        return bool(found is value or found == value)

    def _rename(self, path: str, name: object) -> Iterator[str]:
        """Remove the options that the component `name` does not have or allow; yield a note for each."""
        table, choice = get_value(self.raw, path), choice_at(self.schema, self.raw, path)
        if not isinstance(table, dict) or choice is None:
            return
        old, names = str(table.get("name", choice.default)), choice.names()
        if not isinstance(name, str) or old == name or not {old, name} <= {*names}:
            return  # validation rejects unknown names
        old_keys, new_table = choice.table(old).keys(), choice.table(name)
        new_keys = new_table.keys()
        for key in [key for key in table if key in old_keys and key != "name"]:
            if key not in new_keys:
                reason = "has no such option"
            elif not _allows(new_table, name, key, table[key]):
                reason = "does not allow this value"
            else:
                continue
            yield f"{path}.{key} = {to_toml(table.pop(key))} is dropped: {name} {reason}"


def paths_of_key(schema: type[Strict], raw: TomlTable, key: str) -> list[str]:
    """Return the paths at which tables of a scenario, with its choice of components, have a key.

    >>> from rdpfl_sim.scenario.scenario import Scenario
    >>> paths_of_key(Scenario, {}, "lambda")
    ['method.lambda']
    """
    return [path for path in _option_paths(schema, raw, "") if path.rpartition(".")[2] == key]


def _option_paths(kind: object, value: object, path: str) -> Iterator[str]:
    """Yield the paths of all keys inside a table; lists are followed as far as they have entries."""
    if get_origin(kind) in (list, Sequence):
        kind = _choice_or_type(*get_args(kind))
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _option_paths(kind, item, f"{path}[{index}]")
        elif isinstance(value, dict) or path == "adversary":  # a single group is a table
            yield from _option_paths(kind, value, path)
        return
    try:
        table = _table_of(kind, value)
    except PluginError:  # validation reports it
        return
    for name, field in {} if table is None else table.model_fields.items():
        key = field.alias or name
        inner = f"{path}.{key}".removeprefix(".")
        yield inner
        part = value.get(key) if isinstance(value, dict) else None
        yield from _option_paths(_choice_or_type(field.annotation, *field.metadata), part, inner)


def choice_at(schema: type[Strict], raw: TomlTable, path: str) -> OneOf | None:
    """Return the choice of components at a path, or None if there is no component at this path.

    >>> from rdpfl_sim.scenario.scenario import Scenario
    >>> choice_at(Scenario, {}, "network.latency").kind
    'latency'
    """
    kind, _ = _kind_at(schema, raw, path)
    return kind if isinstance(kind, OneOf) else None


def description_at(schema: type[Strict], raw: TomlTable, path: str) -> str | None:
    """Return the description of the key at a path, or None if the key is unknown or not described.

    >>> from rdpfl_sim.scenario.scenario import Scenario
    >>> description_at(Scenario, {"network": {"loss": {"name": "bernoulli"}}}, "network.loss.probability")
    'probability that a message is lost'
    """
    parent, _, key = path.rpartition(".")
    kind, value = _kind_at(schema, raw, parent) if parent else (schema, raw)
    table = _table_of(kind, value)
    fields = {} if table is None else table.model_fields
    return next((field.description for name, field in fields.items() if key == (field.alias or name)), None)


def _kind_at(schema: type[Strict], raw: TomlTable, path: str) -> tuple[object, object]:
    """Return the type or the choice of components at a path, and the value there."""
    kind: object = schema
    value: object = raw
    for step in split_path(path):
        kind = _kind_inside(kind, value, step)
        if isinstance(value, list) and isinstance(step, int):
            value = value[step]
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return kind, value


def _kind_inside(kind: object, value: object, step: str | int) -> object:
    """Return the type or the choice of components for a key or a list index of `kind`."""
    if get_origin(kind) in (list, Sequence) and isinstance(step, int):
        return _choice_or_type(*get_args(kind))
    table = _table_of(kind, value)
    for name, field in ({} if table is None else table.model_fields).items():
        if step == (field.alias or name):
            return _choice_or_type(field.annotation, *field.metadata)
    return None


def _table_of(kind: object, value: object) -> type[Strict] | None:
    """Return the table of a section, or of the component that `value` chooses, if there is one."""
    if get_origin(kind) in (list, Sequence):  # a single table instead of a list
        kind = _choice_or_type(*get_args(kind))
    if isinstance(kind, OneOf):
        name = value.get("name", kind.default) if isinstance(value, dict) else value or kind.default
        kind = kind.table(name) if isinstance(name, str) and name in kind.names() else None
    return kind if isinstance(kind, type) and issubclass(kind, Strict) else None


def _choice_or_type(annotation: object, *metadata: object) -> object:
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        metadata = (*inner, *metadata)
    return next((mark for mark in metadata if isinstance(mark, OneOf)), annotation)


def _allows(table: type[Strict], name: str, key: str, value: object) -> bool:
    try:
        table.model_validate({"name": name, key: value})
    except ValidationError as error:
        return all(problem["loc"][:1] != (key,) for problem in error.errors())
    return True
