"""Compare groups of runs with a baseline: settings, metrics paired by seed, and caveats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from rdpfl_sim.components.suggestions import suggest
from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference
from rdpfl_sim.records import statistics
from rdpfl_sim.records.round_range import RoundRange
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.sweeps.comparison.groups import ComparisonError, Group, RunResult
from rdpfl_sim.sweeps.comparison.settings import differing_settings

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
    personal = (statistic.path for statistic in statistics.STATISTICS)
    selected = [path for path in (*personal, *HEADLINES) if path in known]
    for path in extra:
        if path != "all" and path not in known:
            similar = suggest(path, [*known]).partition("; allowed")[0]
            raise ComparisonError(f"--metric {path}: no run has this number in its summary.json{similar}")
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
