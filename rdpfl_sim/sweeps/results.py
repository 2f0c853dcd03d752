"""Read the results of a sweep, and write them as results.csv."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TypeAlias

from rdpfl_sim.records.run_folder import write_atomically
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.summaries import flatten, read_summary

RunSummary: TypeAlias = tuple[PlannedRun, Mapping[str, object]]
"""A complete run, and its summary with dotted keys."""


def read_results(runs: Iterable[PlannedRun], output: Path) -> list[RunSummary]:
    """Return the complete runs with their summaries."""
    found = ((run, read_summary(run, output)) for run in runs)
    return [(run, flatten(summary)) for run, summary in found if summary is not None]


def write_csv(path: Path, results: Sequence[RunSummary]) -> None:
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
