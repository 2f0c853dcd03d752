"""What came out of a sweep: one row per run."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from rdpfl_sim.records.run_folder import write_atomically
from rdpfl_sim.sweeps.plan import PlannedRun, SweepSpec
from rdpfl_sim.sweeps.runner import summary_of

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
