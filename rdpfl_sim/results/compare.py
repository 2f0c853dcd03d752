"""Compare groups of runs with a baseline: settings, metrics paired by seed, and caveats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from rdpfl_sim.components.schema import suggest
from rdpfl_sim.files import JsonObject
from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference
from rdpfl_sim.records import metrics
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.records.summary import RoundRange
from rdpfl_sim.results.groups import (
    ComparisonError,
    Group,
    RunResult,
    differing_settings,
    read_run,
    settings_of,
)
from rdpfl_sim.results.sweep import run_folders
from rdpfl_sim.toml import ValueSyntaxError, parse_value

HEADLINES = (
    "accuracy.honest.global.mean",
    "simulated_s",
    "messages.sent",
    "messages.used",
    "messages.bytes",
)
"""Paths in summary.json of the metrics that are always shown, after all statistics of personal accuracy."""


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
        differing_settings([group.scenario for group in groups]),
        {path: [_cell(group, baseline, seeds[group.label], path) for group in groups] for path in paths},
        [*_unpaired_notes(groups, seeds), *_byzantine_notes(groups, seeds), *_unfinished_notes(groups)],
    )


def _cell(group: Group, baseline: Group, seeds: Iterable[int], metric: str) -> Cell:
    values, others = group.values(metric), baseline.values(metric)
    shared = [values[seed] for seed in seeds if seed in values and seed in others]
    difference = None if group is baseline else paired_difference(values, others)
    return Cell(mean_interval(shared) if shared else None, difference)


def _select_metrics(runs: Sequence[RunResult], extra: Iterable[str]) -> list[str]:
    known = {path: None for run in runs for path in run.summary if run.metric(path) is not None}
    personal = (statistic.path for statistic in metrics.STATISTICS)
    selected = [path for path in (*personal, *HEADLINES) if path in known]
    for path in extra:
        if path != "all" and path not in known:
            similar = suggest(path, [*known]).partition("; allowed")[0]
            raise ComparisonError(f"`metric` {path}: no run has this number in its summary.json{similar}")
        selected += known if path == "all" else [path]
    return list(dict.fromkeys(path for path in selected if path not in ("schema", "seed")))


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


LOCAL = "local"
"""The label of the default baseline, if an axis has it."""


@dataclass(frozen=True)
class LabelledRun:
    """A run of a sweep and the labels of its cases, by axis."""

    labels: Mapping[str, str]
    result: RunResult


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


def compare_sweep(
    folder: Path, plan: JsonObject, baseline: str | None = None, metrics: Iterable[str] = ()
) -> SweepComparison:
    """Compare the cases of the axis that `baseline` names, as `AXIS=LABEL`, a setting, or a label.

    By default, the axis of methods is compared, or the last one; the baseline is its case `local`, or its
    first one. Runs that are not in the plan are ignored.
    """
    axes = {str(axis["name"]): [str(label) for label in axis["labels"]] for axis in plan["axes"]}
    existing = {path.name: path for path in run_folders(folder)}
    planned = [(run["labels"], existing.get(Path(run["folder"]).name)) for run in plan["runs"]]
    runs = [LabelledRun(labels, read_run(path, 0)) for labels, path in planned if path is not None]
    varying = {axis: cases for axis, cases in axes.items() if len({run.labels[axis] for run in runs}) > 1}
    if not varying:
        raise ComparisonError(f"the runs of {folder} do not differ in any axis: there is nothing to compare")
    axis, case = _default_baseline(varying) if baseline is None else _find_baseline(varying, runs, baseline)
    others = [name for name in axes if name != axis]
    blocks: dict[str, list[LabelledRun]] = {}
    for run in runs:
        blocks.setdefault(", ".join(f"{name} = {run.labels[name]}" for name in others), []).append(run)
    notes = []
    if len(runs) < len(planned):
        notes.append(f"{len(planned) - len(runs)} of {len(planned)} planned runs are missing")
    extra = list(metrics)
    found = {}
    for title, members in blocks.items():
        groups = _groups(axis, [case, *(label for label in axes[axis] if label != case)], members)
        if len(groups) > 1 and groups[0].label == case:
            found[title] = compare(groups, extra)
        else:
            notes.append(f"{title or axis} omitted: no seed of {case} has a partner")
    if not found:
        raise ComparisonError(f"no two runs of {folder} can be paired with the baseline {axis} = {case}")
    notes += [
        f"{title}: {note}" if title else note
        for title, comparison in found.items()
        for note in comparison.notes
    ]
    return SweepComparison(str(plan["name"]), axis, case, others, found, notes)


def _groups(axis: str, cases: Sequence[str], runs: Iterable[LabelledRun]) -> list[Group]:
    """Return one group per case, the baseline first, without cases that share no seed with it."""
    by_case: dict[str, dict[int, RunResult]] = {case: {} for case in cases}
    for run in runs:
        by_case[run.labels[axis]][run.result.seed] = run.result
    seeds = by_case[cases[0]].keys()
    return [Group(case, found) for case, found in by_case.items() if found.keys() & seeds]


def _default_baseline(axes: Mapping[str, list[str]]) -> tuple[str, str]:
    axis = next((name for name in axes if "method" in name.lower()), [*axes][-1])
    return axis, next((label for label in axes[axis] if label.lower() == LOCAL), axes[axis][0])


def _find_baseline(
    axes: Mapping[str, list[str]], runs: Sequence[LabelledRun], baseline: str
) -> tuple[str, str]:
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
        matching = _cases_with(axes, runs, name, text)
    if len(matching) != 1:
        found = "no case matches" if not matching else f"{len(matching)} cases match"
        cases = "; ".join(f"{axis}={label}" for axis, labels in axes.items() for label in labels)
        raise ComparisonError(f"`baseline` {baseline}: {found}; allowed: {cases}, or a setting of one case")
    return matching[0]


def _cases_with(
    axes: Mapping[str, list[str]], runs: Sequence[LabelledRun], path: str, text: str
) -> list[tuple[str, str]]:
    """Return the cases whose runs all have a setting, where no other case of the axis has it."""
    try:
        value = parse_value(text)
    except ValueSyntaxError as error:
        raise ComparisonError(f"`baseline` {path}: {error}") from error
    having = [run for run in runs if settings_of(run.result.scenario).get(path) == value]
    matching = []
    for axis in axes:
        labels = {run.labels[axis] for run in having}
        if len(labels) == 1 and all(run in having for run in runs if run.labels[axis] in labels):
            matching.append((axis, labels.pop()))
    return matching
