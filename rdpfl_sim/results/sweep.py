"""The runs of a sweep, or of any folder that contains runs, labelled by the settings that vary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from rdpfl_sim.components.schema import suggest
from rdpfl_sim.errors import RunError
from rdpfl_sim.files import JsonObject, read_json_if_present
from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference
from rdpfl_sim.records.files import RUNS, SCENARIO
from rdpfl_sim.records.summary import metric_name
from rdpfl_sim.results.run import Run
from rdpfl_sim.toml import TomlTable, leaves

if TYPE_CHECKING:
    from rdpfl_sim.results.tables import Table

PLAN = "sweep.json"
"""The plan of a sweep: its axes, its runs and its tables."""

HEADLINE = "accuracy.honest.personal.mean"
SCALARS = (str, int, float, bool)
WITHOUT_EFFECT = ("name", "seed", "output", "notes")
"""Keys of a scenario that do not distinguish experiments."""

ESTIMATE_COLUMNS: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "unit": pl.String,
    "mean": pl.Float64,
    "deviation": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "num_seeds": pl.Int64,
}
"""The columns of `Sweep.estimates` after the labels."""

MAX_AXES = 4
"""Runs that differ in more settings than this are not treated as a grid."""


@dataclass(frozen=True)
class SweepRun:
    """A run of a sweep and the labels of its cases, by axis."""

    run: Run
    labels: Mapping[str, str]

    @property
    def seed(self) -> int:
        """The seed in the scenario."""
        return self.run.seed

    @property
    def summary(self) -> JsonObject:
        """The summary with dotted keys."""
        return self.run.flat_summary

    def value(self, metric: str) -> float | None:
        """Return a number in the summary, or None if it is missing or not finite."""
        return self.run.value(metric)


class Sweep:
    """A sweep folder. Without `sweep.json`, the axes are the settings in which the scenarios differ."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            problem = "is not a folder" if self.folder.exists() else "does not exist"
            raise RunError(f"{self.folder} {problem}")
        if not self._folders and not self.plan:
            raise RunError(f"{self.folder} is neither a run folder nor a sweep folder: it contains no runs")

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r})"

    @cached_property
    def plan(self) -> JsonObject:
        """The content of sweep.json: name, axes, words, runs and tables; empty if the file is missing."""
        plan = read_json_if_present(self.folder / PLAN)
        if plan is None:
            return {}
        try:
            axes = {axis["name"]: list(axis["labels"]) for axis in plan["axes"]}
            for run in plan["runs"]:
                Path(run["folder"])
                for axis, labels in axes.items():
                    labels.index(run["labels"][axis])
        except (LookupError, TypeError, ValueError) as error:
            raise RunError(f"{self.folder / PLAN} is damaged: an axis or a run is incomplete") from error
        return plan

    @cached_property
    def _folders(self) -> list[Path]:
        return run_folders(self.folder)

    @property
    def name(self) -> str:
        """The name in the plan, or the name of the folder."""
        return str(self.plan.get("name", self.folder.resolve().name))

    @property
    def num_planned(self) -> int:
        """Number of runs in the complete sweep."""
        return len(self.plan.get("runs", self._folders))

    @cached_property
    def axes(self) -> dict[str, list[str]]:
        """The case labels of each axis, in order."""
        if self.plan:
            return {axis["name"]: list(axis["labels"]) for axis in self.plan["axes"]}
        return {name: list(dict.fromkeys(labels)) for name, labels in self._differing_settings.items()}

    @cached_property
    def _differing_settings(self) -> dict[str, list[str]]:
        """The settings in which the scenarios differ: for each path, one label per run."""
        rows = differing_settings([Run(folder) for folder in self._folders])
        if len(rows) > MAX_AXES:  # not a grid: each run is a separate case
            return {"run": [folder.name for folder in self._folders]}
        return {path: ["-" if value is None else str(value) for value in row] for path, row in rows.items()}

    @cached_property
    def runs(self) -> list[SweepRun]:
        """The runs that exist so far, in the order of the axes."""
        runs = [SweepRun(Run(folder), labels) for folder, labels in self._labelled_folders()]
        return sorted(runs, key=lambda run: (self._position(run.labels), run.seed))

    def _labelled_folders(self) -> list[tuple[Path, dict[str, str]]]:
        """Return existing run folders with their labels; identical cases share a folder."""
        if self.plan:
            existing = {folder.name: folder for folder in self._folders}
            planned = [(existing.get(Path(run["folder"]).name), run["labels"]) for run in self.plan["runs"]]
            return [(folder, labels) for folder, labels in planned if folder is not None]
        return [
            (folder, {path: row[index] for path, row in self._differing_settings.items()})
            for index, folder in enumerate(self._folders)
        ]

    def _position(self, labels: Mapping[str, str]) -> list[int]:
        return [cases.index(labels[axis]) for axis, cases in self.axes.items()]

    @property
    def unplanned_folders(self) -> list[Path]:
        """The run folders that are not in the plan; none if there is no plan."""
        planned = {Path(run["folder"]).name for run in self.plan.get("runs", ())}
        return [folder for folder in self._folders if folder.name not in planned] if self.plan else []

    @property
    def results(self) -> pl.DataFrame:
        """One row per run: folder, labels, seed, status, and all scalar values of the summary."""
        rows = [
            {
                "run": each.run.folder.name,
                **each.labels,
                "seed": each.seed,
                "status": each.run.status,
                **{k: v for k, v in each.summary.items() if isinstance(v, SCALARS) and k not in each.labels},
            }
            for each in self.runs
        ]
        return pl.DataFrame(rows, infer_schema_length=None, strict=False)

    def estimates(self, *metrics: str) -> pl.DataFrame:
        """Return one row per case and metric: labels, `metric`, `unit`, and the statistics over seeds.

        `mean`, `deviation`, and `low` to `high`, the 95 % interval (Student's t), are in the unit of the
        metric: `s`, `bytes`, or none for accuracies, shares and counts. `num_seeds` is the number of runs;
        with one run, `deviation`, `low` and `high` are null. Without arguments, all numbers in the summaries
        are included.
        """
        clashing = [axis for axis in self.axes if axis in ESTIMATE_COLUMNS]
        if clashing:
            raise RunError(f"{self.folder}: the axis {clashing[0]!r} has the name of a column of estimates()")
        known = self.metrics
        for metric in metrics:
            if metric not in known:
                hint = suggest(metric, known).partition("; allowed")[0]
                raise RunError(f"{self.folder}: no summary.json has the number {metric!r}{hint}")
        rows = [
            (*labels, *_estimate_row(metric, interval))
            for metric in metrics or known
            for labels, interval in self.intervals(metric).items()
        ]
        schema = dict.fromkeys(self.axes, pl.String) | ESTIMATE_COLUMNS
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def moments(self) -> list[str]:
        """The moments at which the runs measure accuracy (`Run.moment`); usually one."""
        return list(dict.fromkeys(run.run.moment for run in self.runs))

    def metric_label(self, metric: str) -> str:
        """Return the name of a number in the summaries, with its unit and the moment of its measurement."""
        return metric_name(metric, self.moments).label

    @cached_property
    def metrics(self) -> list[str]:
        """The paths of all numbers in the summaries, without the schema and the seed."""
        return known_metrics(run.run for run in self.runs)

    def intervals(self, metric: str = HEADLINE) -> dict[tuple[str, ...], MeanInterval]:
        """Return the mean and its interval over seeds for each combination of labels."""
        return {labels: mean_interval(values.values()) for labels, values in self._values(metric).items()}

    def differences(
        self, axis: str, baseline: str, metric: str = HEADLINE
    ) -> dict[tuple[str, ...], MeanInterval]:
        """Return differences from the case `baseline` of an axis, paired by seed, with equal other labels."""
        values, index = self._values(metric), [*self.axes].index(axis)
        differences = {}
        for labels, own in values.items():
            other = values.get((*labels[:index], baseline, *labels[index + 1 :]), {})
            difference = paired_difference(own, other)
            if difference is not None and labels[index] != baseline:
                differences[labels] = difference
        return differences

    def _values(self, metric: str) -> dict[tuple[str, ...], dict[int, float]]:
        values: dict[tuple[str, ...], dict[int, float]] = {}
        for run in self.runs:
            value = run.value(metric)
            if value is not None:
                values.setdefault(tuple(run.labels[axis] for axis in self.axes), {})[run.seed] = value
        return values

    def tables(self, layouts: Sequence[Mapping[str, object]] = ()) -> list[Table]:
        """Return the tables of the sweep file, or those of these layouts (docs/experiments/sweeps.md)."""
        from rdpfl_sim.results.tables import make_table, read_layouts

        chosen = [*(layouts or self.plan.get("tables", ()))] or [{}]
        return [make_table(self, layout) for layout in read_layouts(chosen, self.axes)]


def _estimate_row(metric: str, interval: MeanInterval) -> tuple[object, ...]:
    has_interval = interval.half_width is not None
    ends = (interval.low, interval.high) if has_interval else (None, None)
    return metric, metric_name(metric).unit, interval.mean, interval.deviation, *ends, interval.num


def run_folders(parent: Path) -> list[Path]:
    """Return the run folders in a folder or in its folder `runs`.

    Hidden folders contain incomplete runs and are omitted.
    """
    folders = [
        path.parent for inside in (parent, parent / RUNS) for path in sorted(inside.glob(f"*/{SCENARIO}"))
    ]
    return [folder for folder in folders if not folder.name.startswith(".")]


def known_metrics(runs: Iterable[Run]) -> list[str]:
    """Return the paths of all numbers in the summaries, without the schema and the seed."""
    paths = {path: None for run in runs for path in run.flat_summary if run.value(path) is not None}
    return [path for path in paths if path not in ("schema", "seed")]


def compared_axis(axes: Sequence[str]) -> str:
    """Return the axis of methods if there is one, otherwise the last axis."""
    return next((name for name in axes if "method" in name.lower()), axes[-1])


def baseline_case(labels: Sequence[str]) -> str:
    """Return the case of local training if there is one, otherwise the first case."""
    return next((label for label in labels if label.lower() == "local"), labels[0])


def settings_of(scenario: TomlTable) -> dict[str, object]:
    """Return every setting of a scenario by its path, in the form of an override.

    >>> settings_of({"faults": [{"at_s": 1.0}], "model": {"hidden": [64]}, "adversary": []})
    {'faults[0].at_s': 1.0, 'model.hidden': [64]}
    """
    return {path: value for path, value in leaves(scenario).items() if value != []}


def without_seed(scenario: TomlTable) -> TomlTable:
    """Return a scenario without its seed and without the keys that do not affect results."""
    return {key: value for key, value in scenario.items() if key not in WITHOUT_EFFECT}


def all_differing_settings(scenarios: Iterable[TomlTable]) -> dict[str, list[object]]:
    """Return the settings that differ, by path: one value per scenario, None if it has no such setting."""
    found = [settings_of(without_seed(scenario)) for scenario in scenarios]
    paths = dict.fromkeys(path for settings in found for path in settings)
    rows = {path: [settings.get(path) for settings in found] for path in paths}
    return {path: row for path, row in rows.items() if any(value != row[0] for value in row)}


def differing_settings(runs: Sequence[Run]) -> dict[str, list[object]]:
    """Return the settings that differ, without options that only some runs have, all at their default."""
    return {
        path: row
        for path, row in all_differing_settings(run.scenario for run in runs).items()
        if None not in row
        or any(v is not None and path not in run.defaults for v, run in zip(row, runs, strict=True))
    }
