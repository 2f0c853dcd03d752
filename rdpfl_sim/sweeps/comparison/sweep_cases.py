"""Compare the cases of one axis of a sweep, paired by seed within the cases of all other axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rdpfl_sim.components.suggestions import suggest
from rdpfl_sim.records.json_file import JsonObject
from rdpfl_sim.scenario.toml_file import ValueSyntaxError, parse_value
from rdpfl_sim.sweeps.comparison.compare import Comparison, compare
from rdpfl_sim.sweeps.comparison.groups import ComparisonError, Group, RunResult, read_run
from rdpfl_sim.sweeps.comparison.settings import settings_of
from rdpfl_sim.sweeps.results import run_folders

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
                f"--baseline {baseline}: the axis {name} has no such case{suggest(text, axes[name])}"
            )
        matching = [(name, text)]
    else:
        matching = _cases_with(axes, runs, name, text)
    if len(matching) != 1:
        found = "no case matches" if not matching else f"{len(matching)} cases match"
        cases = "; ".join(f"{axis}={label}" for axis, labels in axes.items() for label in labels)
        raise ComparisonError(f"--baseline {baseline}: {found}; allowed: {cases}, or a setting of one case")
    return matching[0]


def _cases_with(
    axes: Mapping[str, list[str]], runs: Sequence[LabelledRun], path: str, text: str
) -> list[tuple[str, str]]:
    """Return the cases whose runs all have a setting, where no other case of the axis has it."""
    try:
        value = parse_value(text)
    except ValueSyntaxError as error:
        raise ComparisonError(f"--baseline {path}: {error}") from error
    having = [run for run in runs if settings_of(run.result.scenario).get(path) == value]
    matching = []
    for axis in axes:
        labels = {run.labels[axis] for run in having}
        if len(labels) == 1 and all(run in having for run in runs if run.labels[axis] in labels):
            matching.append((axis, labels.pop()))
    return matching
