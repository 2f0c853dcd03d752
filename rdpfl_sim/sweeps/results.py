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
from rdpfl_sim.records.run_folder import RUNS, SCENARIO, SUMMARY, write_atomically
from rdpfl_sim.records.schema import check_schema

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun

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
