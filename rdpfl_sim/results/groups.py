"""Find the runs to compare, and group those that differ only in their seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from string import ascii_uppercase

from pydantic import BaseModel

from rdpfl_sim.errors import RunError, ScenarioError
from rdpfl_sim.files import JsonObject, read_json_if_present
from rdpfl_sim.records.files import SCENARIO, SUMMARY
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.results.sweep import PLAN, finite_number, flatten, run_folders
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.toml import TomlTable, ValueSyntaxError, leaves, parse_value


class ComparisonError(Exception):
    """The runs cannot be compared."""


@dataclass(frozen=True)
class RunResult:
    """The folder of a run, its scenario, and its summary with dotted keys."""

    folder: Path
    argument: int
    """the index of the command-line argument"""
    scenario: TomlTable
    summary: JsonObject

    @property
    def seed(self) -> int:
        """The seed in the scenario."""
        return int(self.scenario.get("seed", 1))

    def metric(self, path: str) -> float | None:
        """Return a number in the summary, or None if it is missing or not finite."""
        return finite_number(self.summary.get(path))

    def started_at(self) -> str:
        """Return the time at which the run was started first, in ISO format; unknown times come last."""
        provenance = RunReader(self.folder).read_provenance()
        return "unknown" if provenance is None else str(provenance["sessions"][0]["started_at"])


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds."""

    label: str
    runs: dict[int, RunResult]
    """by seed"""

    @property
    def scenario(self) -> TomlTable:
        """The scenario of the first run."""
        return next(iter(self.runs.values())).scenario

    def values(self, metric: str) -> dict[int, float]:
        """Return the metric by seed; runs without it are omitted."""
        found = {seed: run.metric(metric) for seed, run in self.runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}


def find_runs(arguments: Sequence[Path]) -> list[RunResult]:
    """Read the runs in these folders; each is a run folder or contains run folders."""
    found: dict[Path, RunResult] = {}
    for index, argument in enumerate(arguments):
        for folder in _run_folders(argument):
            if folder.resolve() in found:
                raise ComparisonError(f"{folder} is given twice")
            found[folder.resolve()] = read_run(folder, index)
    return list(found.values())


def _run_folders(path: Path) -> list[Path]:
    if (path / SCENARIO).is_file():
        return [path]
    if not path.is_dir():
        raise ComparisonError(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
    ignored = unplanned_folders(path)
    folders = [folder for folder in run_folders(path) if folder not in ignored]
    if not folders:
        raise ComparisonError(
            f"{path} is not a run folder (with scenario.toml and summary.json) and does not contain any"
        )
    return folders


def read_plan(folder: Path) -> JsonObject | None:
    """Return the plan of a sweep folder, or None if the folder is not one."""
    return read_json_if_present(folder / PLAN)


def unplanned_folders(folder: Path) -> list[Path]:
    """Return the run folders of a sweep that are not in its plan; none if the folder has no plan."""
    plan = read_plan(folder)
    planned = None if plan is None else {Path(run["folder"]).name for run in plan["runs"]}
    return [] if planned is None else [path for path in run_folders(folder) if path.name not in planned]


def ignored_note(folder: Path) -> list[str]:
    """Return a note on the run folders of a sweep that are not in its plan, if there are any."""
    num = len(unplanned_folders(folder))
    folders = "run folder" if num == 1 else "run folders"
    return [f"{folder}: {num} {folders} ignored: not in the plan of the sweep ({PLAN})"] if num else []


def read_run(folder: Path, argument: int) -> RunResult:
    """Read the scenario and the summary of a run; raise a `ComparisonError` if that is not possible."""
    reader = RunReader(folder)
    try:
        summary = flatten(reader.read_summary() or {})
    except OSError as error:
        raise ComparisonError(f"{folder / SUMMARY} cannot be read: {error.strerror}") from error
    except RunError as error:
        raise ComparisonError(str(error)) from error
    return RunResult(folder, argument, reader.read_scenario(), summary)


def group_runs(runs: Iterable[RunResult], by_argument: bool = False) -> list[Group]:
    """Group runs by scenario, ignoring the seed, or by argument.

    The first group, which is the default baseline, has the oldest run of the first argument. The others are
    sorted by argument, then by the settings that differ.
    """
    groups: dict[str | int, dict[int, RunResult]] = {}
    for run in runs:
        key = run.argument if by_argument else json.dumps(without_seed(run.scenario), sort_keys=True)
        group = groups.setdefault(key, {})
        if run.seed in group:
            which = f"{group[run.seed].folder} and {run.folder} have the same seed ({run.seed})"
            if by_argument:
                raise ComparisonError(f"{which} and belong to the same argument: omit one of them")
            raise ComparisonError(f"{which} and the same scenario: omit one of them, or use `by_argument`")
        group[run.seed] = run
    if len(groups) < 2:
        same = "belong to one argument" if by_argument else "have the same scenario"
        raise ComparisonError(f"all runs {same}: there is nothing to compare")
    ordered = _oldest_first(_sorted_by_settings([*groups.values()]))
    return [Group(label, group) for label, group in zip(_group_labels(), ordered, strict=False)]


def _sorted_by_settings(groups: Sequence[dict[int, RunResult]]) -> list[dict[int, RunResult]]:
    """Sort by argument, then by the settings that differ, because sweep folders are named by hashes."""
    firsts = [next(iter(group.values())) for group in groups]
    rows = all_differing_settings([run.scenario for run in firsts]).values()
    keys = [(run.argument, [_sort_key(row[index]) for row in rows]) for index, run in enumerate(firsts)]
    return [groups[index] for index in sorted(range(len(groups)), key=keys.__getitem__)]


def _oldest_first(groups: Sequence[dict[int, RunResult]]) -> list[dict[int, RunResult]]:
    """Move the group with the oldest run of the first argument to the front."""
    argument = min(run.argument for group in groups for run in group.values())
    within = [[run for run in group.values() if run.argument == argument] for group in groups]
    if sum(map(bool, within)) == 1:
        return [*groups]
    oldest = min((run for runs in within for run in runs), key=RunResult.started_at)
    return sorted(groups, key=lambda group: group.get(oldest.seed) is not oldest)


def _sort_key(value: object) -> tuple[int, float, str]:
    """Sort numbers by size, then all other values by their text."""
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0.0, json.dumps(value, default=str)


def _group_labels() -> Iterator[str]:
    """Yield A to Z, AA, AB and so on.

    >>> from itertools import islice
    >>> list(islice(_group_labels(), 24, 28))
    ['Y', 'Z', 'AA', 'AB']
    """
    return ("".join(letters) for size in count(1) for letters in product(ascii_uppercase, repeat=size))


def baseline_first(groups: Sequence[Group], baseline: str) -> list[Group]:
    """Move the group with this label, setting (`path=value`) or run folder to the front."""
    matching = [group for group in groups if _matches(group, baseline)]
    if len(matching) != 1:
        labels = ", ".join(group.label for group in matching or groups)
        found = f"{len(matching)} groups match ({labels})" if matching else f"no group matches (of {labels})"
        raise ComparisonError(
            f"`baseline` {baseline}: {found}; allowed: a label, a run folder, or a setting such as "
            f"method.name=local"
        )
    return [*matching, *(group for group in groups if group is not matching[0])]


def _matches(group: Group, baseline: str) -> bool:
    path, equals, text = baseline.partition("=")
    if not equals or Path(baseline).exists():
        folders = [run.folder.resolve() for run in group.runs.values()]
        return group.label == baseline.upper() or Path(baseline).resolve() in folders
    try:
        value = parse_value(text)
    except ValueSyntaxError as error:
        raise ComparisonError(f"`baseline` {path}: {error}") from error
    return all(settings_of(run.scenario).get(path.strip()) == value for run in group.runs.values())


WITHOUT_EFFECT = ("name", "seed", "output", "notes")
"""Keys that do not distinguish experiments."""


def without_seed(scenario: TomlTable) -> TomlTable:
    """Return a scenario without its seed and without the keys that do not affect results."""
    return {key: value for key, value in scenario.items() if key not in WITHOUT_EFFECT}


def settings_of(scenario: TomlTable) -> dict[str, object]:
    """Return every setting of a scenario by its path, in the form of an override.

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
