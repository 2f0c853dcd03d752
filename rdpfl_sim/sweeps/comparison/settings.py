"""The settings in which scenarios differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.toml_file import TomlTable, leaves

WITHOUT_EFFECT = ("name", "seed", "output", "notes")
"""Keys that do not distinguish experiments."""


def without_seed(scenario: TomlTable) -> TomlTable:
    """Return a scenario without its seed and without the keys that do not affect results."""
    return {key: value for key, value in scenario.items() if key not in WITHOUT_EFFECT}


def settings_of(scenario: TomlTable) -> dict[str, object]:
    """Return every setting of a scenario by its path, in the form that `--set` accepts.

    >>> settings_of({"faults": [{"at_s": 1.0}], "model": {"hidden": [64]}, "adversary": []})
    {'faults[0].at_s': 1.0, 'model.hidden': [64]}
    """
    return {path: value for path, value in leaves(scenario).items() if value != []}


def differing_settings(scenarios: Sequence[TomlTable]) -> dict[str, list[object]]:
    """Return the settings that differ, by path: one value per scenario, None if it has no such setting.

    An option that only some scenarios have is omitted if all of them use its default.
    """
    differing = all_differing_settings(scenarios)
    defaults = [_paths_at_default(scenario) for scenario in scenarios]
    unchanged = {
        path
        for path, row in differing.items()
        if None in row and all(v is None or path in at for v, at in zip(row, defaults, strict=True))
    }
    return {path: row for path, row in differing.items() if path not in unchanged}


def all_differing_settings(scenarios: Iterable[TomlTable]) -> dict[str, list[object]]:
    """Return the settings that differ, by path, including all options of differing components."""
    found = [settings_of(without_seed(scenario)) for scenario in scenarios]
    paths = dict.fromkeys(path for settings in found for path in settings)
    rows = {path: [settings.get(path) for settings in found] for path in paths}
    return {path: row for path, row in rows.items() if any(value != row[0] for value in row)}


def _paths_at_default(scenario: TomlTable) -> set[str]:
    """Return the paths whose values are defaults; none if a different version wrote the scenario."""
    try:
        return set(_default_paths(Scenario.from_dict(scenario)))
    except ScenarioError:
        return set()


def _default_paths(table: BaseModel, prefix: str = "") -> Iterator[str]:
    for name, field in type(table).model_fields.items():
        path, value = f"{prefix}{field.alias or name}", getattr(table, name)
        if path == "adversary" and len(value) == 1:  # a single group is a table, not a list
            (value,) = value
        if isinstance(value, BaseModel):
            yield from _default_paths(value, f"{path}.")
            if getattr(value, "name", None) == field.default:
                yield f"{path}.name"
        elif value == field.default:
            yield path
