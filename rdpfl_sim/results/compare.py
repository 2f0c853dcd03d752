"""Compare groups of runs with a baseline: settings, metrics paired by seed, and caveats.

A group has runs that differ only in their seeds. The groups are scenarios, folders, or the cases of a sweep.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from string import ascii_uppercase

from rdpfl_sim.components.schema import suggest
from rdpfl_sim.errors import RunError
from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference
from rdpfl_sim.records import metrics
from rdpfl_sim.records.files import PROVENANCE, SCENARIO
from rdpfl_sim.records.metrics import MOMENTS
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.records.summary import RoundRange
from rdpfl_sim.results.run import Run
from rdpfl_sim.results.sweep import (
    PLAN,
    Sweep,
    SweepRun,
    all_differing_settings,
    baseline_case,
    compared_axis,
    differing_settings,
    known_metrics,
    run_folders,
    settings_of,
    without_seed,
)
from rdpfl_sim.toml import TomlTable, ValueSyntaxError, parse_value

HEADLINES = (
    "accuracy.honest.global.mean",
    "simulated_s",
    "messages.sent",
    "messages.used",
    "messages.bytes",
)
"""Paths in summary.json of the metrics that are always shown, after all statistics of personal accuracy."""


class ComparisonError(Exception):
    """The runs cannot be compared."""


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds."""

    label: str
    runs: dict[int, Run]
    """by seed"""

    @property
    def first(self) -> Run:
        """The run that represents the group."""
        return next(iter(self.runs.values()))

    def values(self, metric: str) -> dict[int, float]:
        """Return the metric by seed; runs without it are omitted."""
        found = {seed: run.value(metric) for seed, run in self.runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}


@dataclass(frozen=True)
class Cell:
    """A metric of a group over the seeds shared with the baseline, and the paired difference."""

    mean: MeanInterval | None
    difference: MeanInterval | None = None


@dataclass(frozen=True)
class Comparison:
    """Groups, the baseline first, with the differences in their settings and results."""

    groups: list[Group]
    settings: dict[str, list[object]]
    """For each path, one value per group; None if the group has no such setting."""
    metrics: dict[str, list[Cell]]
    """For each path, one cell per group."""
    notes: list[str]


def compare(groups: Sequence[Group], metrics: Iterable[str] = ()) -> Comparison:
    """Compare groups with the first one; `metrics` adds paths to the headlines, or all paths if "all"."""
    baseline, *others = groups
    shared = {group.label: baseline.runs.keys() & group.runs.keys() for group in others}
    for group in others:
        if not shared[group.label]:
            raise ComparisonError(
                f"{baseline.label} and {group.label} have no seed in common: {baseline.label} has "
                f"{_seed_list(baseline.runs)}, {group.label} has {_seed_list(group.runs)}"
            )
    seeds = {baseline.label: set().union(*shared.values()), **shared}
    paths = _select_metrics([run for group in groups for run in group.runs.values()], metrics)
    return Comparison(
        list(groups),
        differing_settings([group.first for group in groups]),
        {path: [_cell(group, baseline, seeds[group.label], path) for group in groups] for path in paths},
        [
            *_unpaired_notes(groups, seeds),
            *_byzantine_notes(groups, seeds),
            *_unfinished_notes(groups),
            *_moment_notes(groups),
        ],
    )


def _cell(group: Group, baseline: Group, seeds: Iterable[int], metric: str) -> Cell:
    values, others = group.values(metric), baseline.values(metric)
    shared = [values[seed] for seed in seeds if seed in values and seed in others]
    difference = None if group is baseline else paired_difference(values, others)
    return Cell(mean_interval(shared) if shared else None, difference)


def _select_metrics(runs: Sequence[Run], extra: Iterable[str]) -> list[str]:
    known = known_metrics(runs)
    selected = [
        path for path in (*(statistic.path for statistic in metrics.STATISTICS), *HEADLINES) if path in known
    ]
    for path in extra:
        if path != "all" and path not in known:
            similar = suggest(path, known).partition("; allowed")[0]
            raise ComparisonError(f"`metric` {path}: no run has this number in its summary.json{similar}")
        selected += known if path == "all" else [path]
    return list(dict.fromkeys(selected))


def _moment_notes(groups: Sequence[Group]) -> Iterator[str]:
    """Yield the moment at which accuracies were measured."""
    found = dict.fromkeys(MOMENTS[group.first.moment] for group in groups)
    if len(found) == 1:
        yield f"Accuracies are measured {next(iter(found))}."
    else:
        own = ", ".join(f"{group.label} {MOMENTS[group.first.moment]}" for group in groups)
        yield f"Accuracies are measured at different moments: {own}."


def _unpaired_notes(groups: Sequence[Group], seeds: Mapping[str, Set[int]]) -> Iterator[str]:
    for group in groups:
        unpaired = group.runs.keys() - seeds[group.label]
        if unpaired:
            partner = "any other group" if group is groups[0] else groups[0].label
            yield f"{group.label}: {_seed_list(unpaired)} omitted: no partner in {partner}"


def _byzantine_notes(groups: Sequence[Group], seeds: Mapping[str, Set[int]]) -> Iterator[str]:
    """Warn if Byzantine clients differ: shards differ in difficulty, so the pairing is not exact."""
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
            f"{', '.join(different)}: Byzantine clients differ from those in {baseline.label}, so the honest "
            "clients differ too. This may explain part of the difference in accuracy."
        )


def _unfinished_notes(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        for run in group.runs.values():
            status = run.summary.get("status", "unfinished, without a summary.json")
            if status != RunStatus.FINISHED:
                rounds = RoundRange.of_summary(run.summary, run.scenario["rounds"])
                progress = "" if rounds is None else f" after {rounds} rounds"
                reason = f" ({run.summary['error']})" if "error" in run.summary else ""
                yield f"{group.label}: {run.folder} is {status}{progress}{reason}"


def _seed_list(seeds: Iterable[int]) -> str:
    ordered = sorted(seeds)
    return f"seed{'s' if len(ordered) > 1 else ''} {', '.join(map(str, ordered))}"


def find_runs(arguments: Sequence[Path]) -> list[list[Run]]:
    """Read the runs of each argument: a run folder, or a folder that contains run folders."""
    seen: set[Path] = set()
    runs = []
    for argument in arguments:
        folders = _run_folders(argument)
        for folder in folders:
            if folder.resolve() in seen:
                raise ComparisonError(f"{folder} is given twice")
            seen.add(folder.resolve())
        runs.append([Run(folder) for folder in folders])
        _read_files(runs[-1])
    return runs


def _run_folders(path: Path) -> list[Path]:
    if (path / SCENARIO).is_file():
        return [path]
    if not path.is_dir():
        raise ComparisonError(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
    folders = run_folders(path)
    if folders:
        unplanned = Sweep(path).unplanned_folders
        folders = [folder for folder in folders if folder not in unplanned]
    if not folders:
        raise ComparisonError(
            f"{path} is not a run folder (with scenario.toml and summary.json) and does not contain any"
        )
    return folders


def _read_files(runs: Iterable[Run]) -> None:
    """Read the files that are compared; raise a `ComparisonError` if a summary cannot be read."""
    try:
        for run in runs:
            _ = run.scenario, run.summary
    except OSError as error:
        raise ComparisonError(f"{error.filename} cannot be read: {error.strerror}") from error
    except RunError as error:
        raise ComparisonError(str(error)) from error


def is_planned(folder: Path) -> bool:
    """Return whether a folder is a sweep with a plan, whose cases have labels."""
    return (folder / PLAN).exists()


def ignored_note(folder: Path) -> list[str]:
    """Return a note on the run folders of a sweep that are not in its plan, if there are any."""
    num = len(Sweep(folder).unplanned_folders) if is_planned(folder) else 0
    folders = "run folder" if num == 1 else "run folders"
    return [f"{folder}: {num} {folders} ignored: not in the plan of the sweep ({PLAN})"] if num else []


def group_runs(arguments: Sequence[Sequence[Run]], by_argument: bool = False) -> list[Group]:
    """Group the runs of all arguments by scenario, ignoring the seed, or by argument.

    The first group, which is the default baseline, has the oldest run of the first argument. The others are
    sorted by argument, then by the settings that differ.
    """
    argument_of = {run: index for index, runs in enumerate(arguments) for run in runs}
    groups: dict[str | int, dict[int, Run]] = {}
    for run, index in argument_of.items():
        key = index if by_argument else json.dumps(without_seed(run.scenario), sort_keys=True)
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
    found = [Group("", runs) for runs in groups.values()]
    rows = all_differing_settings(group.first.scenario for group in found).values()
    keys = [
        (argument_of[group.first], [_sort_key(row[index]) for row in rows])
        for index, group in enumerate(found)
    ]
    ordered = [found[index] for index in sorted(range(len(found)), key=keys.__getitem__)]
    within = [group for group in ordered if any(argument_of[run] == 0 for run in group.runs.values())]
    if len(within) > 1:
        candidates = [run for group in within for run in group.runs.values() if argument_of[run] == 0]
        oldest = min(candidates, key=_started_at)
        ordered.sort(key=lambda group: group.runs.get(oldest.seed) is not oldest)
    return [Group(label, group.runs) for label, group in zip(_group_labels(), ordered, strict=False)]


def _started_at(run: Run) -> str:
    """Return the time at which a run was started first, in ISO format; unknown times come last."""
    if not run.provenance:
        return "unknown"
    try:
        return str(run.provenance["sessions"][0]["started_at"])
    except (LookupError, TypeError) as error:
        raise RunError(f"{run.folder / PROVENANCE} is damaged: it has no start time") from error


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
    value = _baseline_value(path, text)
    return all(_has(run.scenario, path.strip(), value) for run in group.runs.values())


def _baseline_value(path: str, text: str) -> object:
    try:
        return parse_value(text)
    except ValueSyntaxError as error:
        raise ComparisonError(f"`baseline` {path}: {error}") from error


def _has(scenario: TomlTable, path: str, value: object) -> bool:
    return settings_of(scenario).get(path) == value


@dataclass(frozen=True)
class SweepComparison:
    """The cases of an axis, compared with one of them; one comparison per combination of the other axes."""

    name: str
    axis: str
    baseline: str
    other_axes: list[str]
    blocks: dict[str, Comparison]
    """by the labels of the other axes, such as `attack = none`"""
    notes: list[str]


def compare_sweep(sweep: Sweep, baseline: str | None = None, metrics: Iterable[str] = ()) -> SweepComparison:
    """Compare the cases of the axis that `baseline` names, as `AXIS=LABEL`, a setting, or a label.

    By default, the axis of methods is compared, or the last one; the baseline is its case `local`, or its
    first one. Runs that are not in the plan are ignored.
    """
    runs = sweep.runs
    _read_files(run.run for run in runs)
    axes = {axis: cases for axis, cases in sweep.axes.items() if len({run.labels[axis] for run in runs}) > 1}
    if not axes:
        raise ComparisonError(
            f"the runs of {sweep.folder} do not differ in any axis: there is nothing to compare"
        )
    if baseline is None:
        axis = compared_axis([*axes])
        case = baseline_case(axes[axis])
    else:
        axis, case = _find_baseline(axes, runs, baseline)
    others = [name for name in sweep.axes if name != axis]
    blocks: dict[str, list[SweepRun]] = {}
    for run in runs:
        blocks.setdefault(", ".join(f"{name} = {run.labels[name]}" for name in others), []).append(run)
    notes = []
    if len(runs) < sweep.num_planned:
        notes.append(f"{sweep.num_planned - len(runs)} of {sweep.num_planned} planned runs are missing")
    extra = list(metrics)
    found = {}
    for title, members in blocks.items():
        groups = _groups(axis, [case, *(label for label in axes[axis] if label != case)], members)
        if len(groups) > 1 and groups[0].label == case:
            found[title] = compare(groups, extra)
        else:
            notes.append(f"{title or axis} omitted: no seed of {case} has a partner")
    if not found:
        raise ComparisonError(
            f"no two runs of {sweep.folder} can be paired with the baseline {axis} = {case}"
        )
    notes += [
        f"{title}: {note}" if title else note
        for title, comparison in found.items()
        for note in comparison.notes
    ]
    return SweepComparison(sweep.name, axis, case, others, found, notes)


def _groups(axis: str, cases: Sequence[str], runs: Iterable[SweepRun]) -> list[Group]:
    """Return one group per case, the baseline first, without cases that share no seed with it."""
    by_case: dict[str, dict[int, Run]] = {case: {} for case in cases}
    for run in runs:
        by_case[run.labels[axis]][run.seed] = run.run
    seeds = by_case[cases[0]].keys()
    return [Group(case, found) for case, found in by_case.items() if found.keys() & seeds]


def _find_baseline(axes: Mapping[str, list[str]], runs: Sequence[SweepRun], baseline: str) -> tuple[str, str]:
    """Return the axis and the label of the baseline: `AXIS=LABEL`, `PATH=VALUE`, or a label."""
    name, equals, text = (part.strip() for part in baseline.partition("="))
    if not equals:
        matching = [(axis, label) for axis, labels in axes.items() for label in labels if label == name]
    elif name in axes:
        if text not in axes[name]:
            raise ComparisonError(
                f"`baseline` {baseline}: the axis {name} has no such case{suggest(text, axes[name])}"
            )
        matching = [(name, text)]
    else:
        matching = _cases_with(axes, runs, name, _baseline_value(name, text))
    if len(matching) != 1:
        found = "no case matches" if not matching else f"{len(matching)} cases match"
        cases = "; ".join(f"{axis}={label}" for axis, labels in axes.items() for label in labels)
        raise ComparisonError(f"`baseline` {baseline}: {found}; allowed: {cases}, or a setting of one case")
    return matching[0]


def _cases_with(
    axes: Mapping[str, list[str]], runs: Sequence[SweepRun], path: str, value: object
) -> list[tuple[str, str]]:
    """Return the cases whose runs all have a setting, where no other case of the axis has it."""
    having = [run for run in runs if _has(run.run.scenario, path, value)]
    matching = []
    for axis in axes:
        labels = {run.labels[axis] for run in having}
        if len(labels) == 1 and all(run in having for run in runs if run.labels[axis] in labels):
            matching.append((axis, labels.pop()))
    return matching
