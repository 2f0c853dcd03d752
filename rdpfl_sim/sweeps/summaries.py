"""The summaries of a sweep's runs, and which runs are still missing.

Light to import: worker processes are started by a module that imports this one (see `process_runner`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdpfl_sim.records.schema import check_schema
from rdpfl_sim.system.files import open_inside

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun


def folder_of(run: PlannedRun, output: Path) -> Path:
    """Return the folder that a run has once it is complete."""
    return output / run.key


def read_summary(run: PlannedRun, output: Path) -> dict[str, Any] | None:
    """Return the summary of a complete run, or None if the run is missing or its summary.json unreadable.

    Raise `SchemaError` if another version wrote the run.
    """
    folder = folder_of(run, output)
    try:
        with open_inside(folder / "summary.json") as file:
            summary = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(summary, dict) or not summary:
        return None
    check_schema(folder)
    return summary


def missing_runs(runs: Iterable[PlannedRun], output: Path) -> list[PlannedRun]:
    """Return the runs that are not complete, each scenario once."""
    unique = {run.key: run for run in runs}
    return [run for run in unique.values() if read_summary(run, output) is None]


def damaged_folders(missing: Iterable[PlannedRun], output: Path) -> list[Path]:
    """Return the folders of missing runs that were complete before and have to be repeated."""
    folders = (folder_of(run, output) for run in missing)
    return [folder for folder in folders if folder.exists()]


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted keys.

    >>> flatten({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    flat: dict[str, Any] = {}
    for key, item in table.items():
        if isinstance(item, Mapping):
            flat |= flatten(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = item
    return flat
