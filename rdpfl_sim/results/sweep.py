"""The runs of a sweep, or of any folder that contains runs, labelled by the settings that vary."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from rdpfl_sim.components.schema import suggest
from rdpfl_sim.errors import RunError
from rdpfl_sim.files import JsonObject, read_json, read_json_if_present, write_atomically
from rdpfl_sim.intervals import MeanInterval, mean_interval, paired_difference
from rdpfl_sim.records.files import RUNS, SCENARIO, SUMMARY
from rdpfl_sim.records.schema import check_schema
from rdpfl_sim.records.summary import metric_name
from rdpfl_sim.results.run import Run

if TYPE_CHECKING:
    from rdpfl_sim.results.tables import Table
    from rdpfl_sim.sweeps.plan import PlannedRun

HEADLINE = "accuracy.honest.personal.mean"
SCALARS = (str, int, float, bool)


@dataclass(frozen=True)
class SweepRun:
    """A run of a sweep: its label on each axis, its seed, and its summary with dotted keys."""

    run: Run
    labels: dict[str, str]
    seed: int
    summary: JsonObject

    def value(self, metric: str) -> float | None:
        """Return a number in the summary, or None if it is missing or not finite."""
        return finite_number(self.summary.get(metric))


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
        """The content of sweep.json: name, axes, runs and tables; empty if the file is missing."""
        plan = read_json_if_present(self.folder / PLAN) or {}
        for layout in plan.get("tables", ()):
            layout.pop("spread", None)  # written by versions that could print standard deviations after ±
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
        from rdpfl_sim.results.groups import differing_settings

        rows = differing_settings([Run(folder).scenario for folder in self._folders])
        if len(rows) > MAX_AXES:  # not a grid: each run is a separate case
            return {"run": [folder.name for folder in self._folders]}
        return {path: ["-" if value is None else str(value) for value in row] for path, row in rows.items()}

    @cached_property
    def runs(self) -> list[SweepRun]:
        """The runs that exist so far, in the order of the axes."""
        runs = []
        for folder, labels in self._labelled_folders():
            run = Run(folder)
            runs.append(SweepRun(run, labels, int(run.scenario.get("seed", 1)), flatten(run.summary)))
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
    def metrics(self) -> list[str]:
        """The paths of all numbers in the summaries, without the schema and the seed."""
        paths = {path: None for run in self.runs for path in run.summary if run.value(path) is not None}
        return [path for path in paths if path not in ("schema", "seed")]

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
        from rdpfl_sim.results.tables import make_tables
        from rdpfl_sim.sweeps.spec import SweepSpec

        axes = [
            {"name": name, "cases": [{"label": label} for label in labels]}
            for name, labels in self.axes.items()
        ]
        chosen = [*(layouts or self.plan.get("tables", ()))]
        planned = SweepSpec.from_dict({"name": "sweep", "axis": axes, "table": chosen})
        return make_tables(planned, [(run, run.summary) for run in self.runs])


def _estimate_row(metric: str, interval: MeanInterval) -> tuple[object, ...]:
    has_interval = interval.half_width is not None
    ends = (interval.low, interval.high) if has_interval else (None, None)
    return metric, metric_name(metric).unit, interval.mean, interval.deviation, *ends, interval.num


PLAN = "sweep.json"
"""The plan of a sweep: its axes and runs."""

MAX_COLUMNS = 60
"""Maximum number of columns of results.csv, unless all are requested."""

HEADLINES = (
    *("result.status", "result.error", "result.accuracy.honest.", "result.simulated_s", "result.messages."),
    *("result.rounds_done", "result.byzantine", "result.num_parameters", "result.telemetry.delay_s.mean"),
    *("result.wall.seconds", "result.digest", "result.warnings"),
)
"""Columns of results.csv by importance; a final dot stands for all columns that begin so."""


def folder_of(run: PlannedRun, output: Path) -> Path:
    """Return the folder of a complete run; earlier versions wrote it beside the results."""
    beside = output / run.key
    return beside if beside.exists() else output / RUNS / run.key


def run_folders(parent: Path) -> list[Path]:
    """Return the run folders in a folder or in its folder `runs`.

    Hidden folders contain incomplete runs and are omitted.
    """
    folders = [
        path.parent for inside in (parent, parent / RUNS) for path in sorted(inside.glob(f"*/{SCENARIO}"))
    ]
    return [folder for folder in folders if not folder.name.startswith(".")]


def read_summary(run: PlannedRun, output: Path) -> JsonObject | None:
    """Return the summary of a complete run, or None if summary.json is missing or unreadable.

    Raise `SchemaError` if the run was written by a version with a different schema.
    """
    folder = folder_of(run, output)
    try:
        summary = read_json(folder / SUMMARY)
    except (OSError, RunError):
        return None
    if not summary:
        return None
    check_schema(folder)
    return summary


def flatten(table: Mapping[str, object], prefix: str = "") -> JsonObject:
    """Return nested tables as one table with dotted keys.

    >>> flatten({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    flat: JsonObject = {}
    for key, item in table.items():
        if isinstance(item, Mapping):
            flat |= flatten(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def finite_number(value: object) -> float | None:
    """Return a value of a summary as a float, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)


def read_results(runs: Iterable[PlannedRun], output: Path) -> list[tuple[PlannedRun, JsonObject]]:
    """Return the complete runs, and their summaries with dotted keys."""
    found = ((run, read_summary(run, output)) for run in runs)
    return [(run, flatten(summary)) for run, summary in found if summary is not None]


def write_csv(
    path: Path, results: Sequence[tuple[PlannedRun, JsonObject]], metrics: Iterable[str] | None = None
) -> tuple[int, int]:
    """Write one row per run: its labels, the keys of its scenario, and the keys of its summary.

    With `metrics`, write at most `MAX_COLUMNS` columns, with these metrics among them. Return the numbers of
    written and of omitted columns.
    """
    rows: list[JsonObject] = []
    for run, summary in results:
        parameters = flatten(run.scenario.to_dict(), "scenario.")
        parameters.pop("scenario.notes", None)
        values = {f"result.{key}": value for key, value in summary.items()}
        rows.append({"run": run.key, **run.labels, **parameters, **values})
    columns = list(dict.fromkeys(key for row in rows for key in row))
    chosen = columns
    if metrics is not None:
        labels = dict.fromkeys(label for run, _ in results for label in run.labels)
        first = ["run", *labels, "scenario.seed", *(f"result.{path}" for path in metrics)]
        ranked = [key for key in _by_importance(first, rows, columns) if key in columns]
        chosen = sorted(ranked[:MAX_COLUMNS], key=columns.index)
    text = StringIO()
    writer = csv.DictWriter(text, chosen, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()} for row in rows
    )
    write_atomically(path, text.getvalue().encode())
    return len(chosen), len(columns) - len(chosen)


def _by_importance(first: Iterable[str], rows: Sequence[JsonObject], columns: Sequence[str]) -> list[str]:
    """Return the columns `first`, then the headlines, then the settings with several values."""
    headlines = [
        key
        for headline in HEADLINES
        for key in columns
        if key == headline or (headline.endswith(".") and key.startswith(headline))
    ]
    settings = [
        key
        for key in columns
        if key.startswith("scenario.") and len({repr(row[key]) for row in rows if key in row}) > 1
    ]
    return list(dict.fromkeys([*first, *headlines, *settings]))
