"""What came out of a sweep: one row a run, and estimates over seeds."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

from scipy.stats import t as student_t  # type: ignore[import-untyped]

from rdpfl_sim.records.run_folder import write_atomically
from rdpfl_sim.sweeps.plan import PlannedRun, SweepSpec
from rdpfl_sim.sweeps.runner import summary_of

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation over seeds, and half the width of the 95 % interval (Student's t)."""

    mean: float
    deviation: float | None
    half_width: float | None
    num: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """From one value a seed."""
        if len(values) < 2:
            return cls(fmean(values), None, None, len(values))
        deviation = stdev(values)
        quantile = float(student_t.ppf((1 + LEVEL) / 2, len(values) - 1))
        return cls(fmean(values), deviation, quantile * deviation / sqrt(len(values)), len(values))


Result: TypeAlias = tuple[PlannedRun, Mapping[str, Any]]
"""A complete run, and its summary in dotted keys."""


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys.

    >>> flat({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    found: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            found |= flat(item, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = item
    return found


def read(runs: Iterable[PlannedRun], output: Path) -> list[Result]:
    """The complete runs with their summaries, dotted."""
    found = ((run, summary_of(run, output)) for run in runs)
    return [(run, flat(summary)) for run, summary in found if summary is not None]


def write_plan(path: Path, sweep: SweepSpec, name: str, runs: Iterable[PlannedRun]) -> None:
    """What is to be run: the axes, the folder and the labels of every run, and the tables that are wanted."""
    plan = {
        "name": name,
        "axes": [{"name": axis.name, "labels": [case.label for case in axis.cases]} for axis in sweep.axes],
        "runs": [{"folder": run.key, "labels": run.labels} for run in runs],
        "tables": [layout.model_dump() for layout in sweep.table],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(plan, indent=1).encode())


def write_csv(path: Path, results: Sequence[Result]) -> None:
    """A tidy file: one row a run, with its labels, every parameter of its scenario, and every metric."""
    rows = []
    for run, summary in results:
        parameters = flat(run.scenario.to_dict(), "scenario.")
        parameters.pop("scenario.notes", None)
        metrics = {f"result.{key}": value for key, value in summary.items()}
        rows.append({"run": run.key, **run.labels, **parameters, **metrics})
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()} for row in rows
    )
    write_atomically(path, text.getvalue().encode())
