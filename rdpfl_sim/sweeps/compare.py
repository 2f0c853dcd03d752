"""Runs side by side: what is different in their scenarios, and in what came out, paired by seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from math import isfinite
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from pydantic import BaseModel

from rdpfl_sim.components.table import suggest
from rdpfl_sim.errors import RunError, ScenarioError
from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference
from rdpfl_sim.records.json_file import read_json_if_present
from rdpfl_sim.records.run_folder import SCENARIO, SUMMARY
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.toml_file import LimitError, parse_value, read_toml
from rdpfl_sim.sweeps.results import flat

HEADLINES = (
    "accuracy.honest.personal.mean",
    "accuracy.honest.personal.worst",
    "accuracy.honest.personal.spread",
    "accuracy.honest.global.mean",
    "simulated_s",
    "messages.sent",
    "messages.used",
    "messages.bytes",
)
"""The metrics that are always shown; paths in summary.json."""

WITHOUT_EFFECT = ("name", "seed", "output", "notes")
"""Runs whose scenarios differ only in these are samples of the same thing."""


class ComparisonError(Exception):
    """Runs that cannot be compared."""


@dataclass(frozen=True)
class RunResult:
    """A run that has been: its folder, the argument that named it, its scenario and its summary."""

    folder: Path
    argument: int
    scenario: dict[str, Any]
    summary: dict[str, Any]

    @property
    def seed(self) -> int:
        """By which it is paired."""
        return int(self.scenario.get("seed", 1))

    def metric(self, path: str) -> float | None:
        """A finite number from its summary."""
        value = self.summary.get(path)
        usable = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        return float(value) if usable else None  # type: ignore[arg-type]  # usable says so


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds."""

    label: str
    runs: dict[int, RunResult]
    """by seed"""

    def values(self, metric: str) -> dict[int, float]:
        """Return the metric by seed, without the runs that lack it."""
        found = {seed: run.metric(metric) for seed, run in self.runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}


@dataclass(frozen=True)
class Cell:
    """A metric of a group over the seeds that it shares with the baseline, and the paired difference."""

    mean: MeanInterval | None
    difference: MeanInterval | None = None


@dataclass(frozen=True)
class Comparison:
    """Groups, the baseline first, with what differs in their settings and in their results."""

    groups: list[Group]
    settings: dict[str, list[Any]]
    """by path: one value a group; None where the group has no such setting"""
    metrics: dict[str, list[Cell]]
    """by path: one cell a group"""
    notes: list[str]


def find_runs(arguments: Sequence[Path]) -> list[RunResult]:
    """The runs in the folders; each is a run folder or contains run folders."""
    found: dict[Path, RunResult] = {}
    for place, argument in enumerate(arguments):
        for folder in _run_folders(argument):
            if folder.resolve() in found:
                raise ComparisonError(f"{folder} is given twice")
            found[folder.resolve()] = _read(folder, place)
    return list(found.values())


def _run_folders(path: Path) -> list[Path]:
    if (path / SCENARIO).is_file():
        return [path]
    if not path.is_dir():
        raise ComparisonError(f"{path} is not a folder" if path.exists() else f"there is no folder {path}")
    inside = sorted(file.parent for file in path.glob(f"*/{SCENARIO}"))
    inside = [folder for folder in inside if not folder.name.startswith(".")]
    if not inside:
        raise ComparisonError(
            f"{path} is neither a run folder (with scenario.toml and summary.json) nor contains one"
        )
    return inside


def _read(folder: Path, argument: int) -> RunResult:
    path = folder / SUMMARY
    try:
        summary = flat(read_json_if_present(path) or {})
    except OSError as error:
        raise ComparisonError(f"{path} cannot be read: {error.strerror}") from error
    except RunError as error:
        raise ComparisonError(str(error)) from error
    return RunResult(folder, argument, read_toml(folder / SCENARIO, follow_links=False), summary)


def grouped(runs: Iterable[RunResult], by_argument: bool = False) -> list[Group]:
    """The runs of each scenario whatever its seed, or of each argument.

    They are in the order of the arguments, and within one in the order of the settings that differ.
    """
    found: dict[Any, dict[int, RunResult]] = {}
    for run in runs:
        group = found.setdefault(run.argument if by_argument else _without_seed(run.scenario), {})
        if run.seed in group:
            what = f"{group[run.seed].folder} and {run.folder} have the same seed, {run.seed},"
            same = "and belong to the same argument" if by_argument else "and the same scenario"
            remedy = "" if by_argument else ", or let every argument be a group (--by-argument)"
            raise ComparisonError(f"{what} {same}: leave one out{remedy}")
        group[run.seed] = run
    if len(found) < 2:
        text = "all runs belong to one argument" if by_argument else "all runs are of the same scenario"
        raise ComparisonError(f"{text}: there is nothing to compare")
    return [
        Group(label, group) for label, group in zip(_letters(), _ordered([*found.values()]), strict=False)
    ]


def _ordered(groups: Sequence[dict[int, RunResult]]) -> list[dict[int, RunResult]]:
    """By argument, then by the values of what differs: folders of a sweep are named by hashes."""
    firsts = [next(iter(group.values())) for group in groups]
    rows = _differing([run.scenario for run in firsts]).values()
    ranks = [(run.argument, [_rank(row[place]) for row in rows]) for place, run in enumerate(firsts)]
    return [groups[place] for place in sorted(range(len(groups)), key=ranks.__getitem__)]


def _rank(value: Any) -> tuple[int, float, str]:
    """Numbers by size, before anything else by its text."""
    is_number = isinstance(value, int | float)
    return (0, value, "") if is_number else (1, 0.0, json.dumps(value, default=str))


def _without_seed(scenario: Mapping[str, Any]) -> str:
    return json.dumps({k: v for k, v in scenario.items() if k not in WITHOUT_EFFECT}, sort_keys=True)


def _letters() -> Iterator[str]:
    """A to Z, AA, AB and so on.

    >>> from itertools import islice
    >>> list(islice(_letters(), 24, 28))
    ['Y', 'Z', 'AA', 'AB']
    """
    return ("".join(word) for size in count(1) for word in product(ascii_uppercase, repeat=size))


def baseline_first(groups: Sequence[Group], chosen: str) -> list[Group]:
    """The groups, led by the one that has this letter, this setting (`path=value`) or this run folder."""
    fitting = [group for group in groups if _fits(group, chosen)]
    if len(fitting) != 1:
        labels = ", ".join(group.label for group in fitting or groups)
        number = f"{len(fitting)} groups fit: {labels}" if fitting else f"no group fits; there are {labels}"
        raise ComparisonError(
            f"--baseline {chosen}: {number}; allowed: a letter, a run folder, or a setting such as "
            f"method.name=local"
        )
    return [*fitting, *(group for group in groups if group is not fitting[0])]


def _fits(group: Group, chosen: str) -> bool:
    path, equals, text = chosen.partition("=")
    if not equals or Path(chosen).exists():
        folders = [run.folder.resolve() for run in group.runs.values()]
        return group.label == chosen.upper() or Path(chosen).resolve() in folders
    try:
        value = parse_value(text)
    except LimitError as error:
        raise ComparisonError(f"--baseline {path}: {error}") from error
    return all(settings_of(run.scenario).get(path.strip()) == value for run in group.runs.values())


def compare(groups: Sequence[Group], metrics: Iterable[str] = ()) -> Comparison:
    """The groups against the first; `metrics` are shown besides the headlines ("all" stands for all)."""
    baseline, *others = groups
    pairs = {group.label: baseline.runs.keys() & group.runs.keys() for group in others}
    for group in others:
        if not pairs[group.label]:
            raise ComparisonError(
                f"{baseline.label} and {group.label} have no seed in common: {baseline.label} has "
                f"{_listed(baseline.runs)}, {group.label} has {_listed(group.runs)}"
            )
    seeds = {baseline.label: set().union(*pairs.values()), **pairs}
    return Comparison(
        list(groups),
        differing_settings([next(iter(group.runs.values())).scenario for group in groups]),
        {
            path: [_cell(group, baseline, seeds[group.label], path) for group in groups]
            for path in _chosen([run for group in groups for run in group.runs.values()], metrics)
        },
        [*_unpaired(groups, seeds), *_other_clients(groups, seeds), *_unfinished(groups)],
    )


def _cell(group: Group, baseline: Group, seeds: Iterable[int], metric: str) -> Cell:
    values, others = group.values(metric), baseline.values(metric)
    shared = [values[seed] for seed in seeds if seed in values and seed in others]
    difference = None if group is baseline else paired_difference(values, others)
    return Cell(mean_interval(shared) if shared else None, difference)


def _chosen(runs: Sequence[RunResult], extra: Iterable[str]) -> list[str]:
    known = {path: None for run in runs for path in run.summary if run.metric(path) is not None}
    chosen = [path for path in HEADLINES if path in known]
    for path in extra:
        if path != "all" and path not in known:
            near = suggest(path, [*known]).partition("; allowed")[0]
            raise ComparisonError(f"--metric {path}: no run has this number in its summary.json{near}")
        chosen += known if path == "all" else [path]
    return list(dict.fromkeys(path for path in chosen if path != "seed"))


def _unpaired(groups: Sequence[Group], seeds: Mapping[str, set[int]]) -> Iterator[str]:
    for group in groups:
        left_out = group.runs.keys() - seeds[group.label]
        if left_out:
            partner = "any other group" if group is groups[0] else groups[0].label
            yield f"{group.label}: {_listed(left_out)} left out, without partner in {partner}"


def _other_clients(groups: Sequence[Group], seeds: Mapping[str, set[int]]) -> Iterator[str]:
    """Shards are unequally hard, so a mean over other clients is not quite a paired one."""
    baseline, *others = groups
    different = [
        group.label
        for group in others
        if any(
            group.runs[seed].summary.get("byzantine") != baseline.runs[seed].summary.get("byzantine")
            for seed in seeds[group.label]
        )
    ]
    if different:
        yield (
            f"{', '.join(different)}: other clients are Byzantine than in {baseline.label}, so the accuracy "
            "of honest clients is that of others; part of a difference may be that"
        )


def _unfinished(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        for run in group.runs.values():
            status = run.summary.get("status", "unfinished, without a summary.json")
            if status != RunStatus.FINISHED:
                done, rounds = run.summary.get("rounds_done", [None])[0], run.scenario.get("rounds")
                how_far = "" if done is None else f" after {done} of {rounds} rounds"
                why = f" ({run.summary['error']})" if "error" in run.summary else ""
                yield f"{group.label}: {run.folder} is {status}{how_far}{why}"


def _listed(seeds: Iterable[int]) -> str:
    ordered = sorted(seeds)
    return f"seed{'s' if len(ordered) > 1 else ''} {', '.join(map(str, ordered))}"


def settings_of(value: Any, path: str = "") -> dict[str, Any]:
    """Every setting of a scenario by its path, as `--set` spells it.

    >>> settings_of({"faults": [{"at_s": 1.0}], "model": {"hidden": [64]}, "adversary": []})
    {'faults[0].at_s': 1.0, 'model.hidden': [64]}
    """
    if isinstance(value, Mapping):
        inner = [settings_of(item, f"{path}.{key}" if path else key) for key, item in value.items()]
    elif isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        inner = [settings_of(item, f"{path}[{place}]") for place, item in enumerate(value)]
    else:
        return {path: value}
    return {key: item for found in inner for key, item in found.items()}


def differing_settings(scenarios: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """By path, the settings that are not the same in all scenarios; None where one has no such setting.

    A component that only some scenarios have brings all its options: only those are told that somebody chose.
    """
    differing = _differing(scenarios)
    defaults = [_at_default(scenario) for scenario in scenarios]
    usual = {
        path
        for path, row in differing.items()
        if None in row and all(v is None or path in at for v, at in zip(row, defaults, strict=True))
    }
    return {path: row for path, row in differing.items() if path not in usual}


def _differing(scenarios: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    found = [settings_of({k: v for k, v in each.items() if k not in WITHOUT_EFFECT}) for each in scenarios]
    paths = dict.fromkeys(path for settings in found for path in settings)
    rows = {path: [settings.get(path) for settings in found] for path in paths}
    return {path: row for path, row in rows.items() if any(value != row[0] for value in row)}


def _at_default(scenario: dict[str, Any]) -> set[str]:
    """The paths whose values are the defaults; none if the scenario is of another version."""
    try:
        return set(_defaults(Scenario.from_dict(scenario)))
    except ScenarioError:
        return set()


def _defaults(table: BaseModel, prefix: str = "") -> Iterator[str]:
    for name, field in type(table).model_fields.items():
        path, value = f"{prefix}{field.alias or name}", getattr(table, name)
        if path == "adversary" and len(value) == 1:  # a single group is a table, not a list
            (value,) = value
        if isinstance(value, BaseModel):
            yield from _defaults(value, f"{path}.")
            if getattr(value, "name", None) == field.default:
                yield f"{path}.name"
        elif value == field.default:
            yield path
