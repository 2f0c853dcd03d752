"""The results of a sweep: which runs are complete, their summaries, and results.csv.

This module must import quickly, because the module that starts worker processes imports it (see
`process_runner`).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.json_file import JsonObject, read_json
from rdpfl_sim.records.run_folder import SCENARIO, SUMMARY, write_atomically
from rdpfl_sim.records.schema import check_schema

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun

PLAN = "sweep.json"
"""The plan of a sweep: its axes and runs."""


def folder_of(run: PlannedRun, output: Path) -> Path:
    """Return the folder of a complete run."""
    return output / run.key


def run_folders(parent: Path) -> list[Path]:
    """Return the run folders in a folder; hidden folders contain incomplete runs and are omitted."""
    folders = sorted(path.parent for path in parent.glob(f"*/{SCENARIO}"))
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


def write_csv(path: Path, results: Sequence[tuple[PlannedRun, JsonObject]]) -> None:
    """Write one row per run, with its labels, every parameter of its scenario, and every metric."""
    rows = []
    for run, summary in results:
        parameters = flatten(run.scenario.to_dict(), "scenario.")
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
