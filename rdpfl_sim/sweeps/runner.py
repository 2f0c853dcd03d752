"""What every engine, which runs the runs of a sweep, has in common. Light to import: see `processes`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rdpfl_sim.system.files import open_inside

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun


class SweepListener(Protocol):
    """Somebody who wants to know how far the sweep is."""

    def started(self, run: PlannedRun) -> None:
        """A run begins."""

    def advanced(self, run: PlannedRun, fraction: float) -> None:
        """So much of a run is done."""

    def ended(self, run: PlannedRun, error: str | None) -> None:
        """A run is complete, or has failed."""


class Runner(Protocol):
    """Somewhere to run many scenarios at a time, each with one torch thread."""

    def prepare(self) -> None:
        """Begin with what takes time and can happen meanwhile; a `ScenarioError` tells what is lacking."""

    def run(self, runs: Sequence[PlannedRun], output: Path, listener: SweepListener) -> None:
        """Run all; what fails does not stop the rest.

        A run's folder appears in `output` when it is complete. After SIGINT or SIGTERM the runs in flight are
        stopped and lost, and KeyboardInterrupt is raised.
        """

    def close(self) -> None:
        """Stop what was started for all runs."""


def folder_of(run: PlannedRun, output: Path) -> Path:
    """Where a complete run is."""
    return output / run.key


def summary_of(run: PlannedRun, output: Path) -> dict[str, Any] | None:
    """Return the summary of a complete run, or None if the run is missing or its summary.json unreadable."""
    try:
        with open_inside(folder_of(run, output) / "summary.json") as file:
            summary = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    return summary if isinstance(summary, dict) and summary else None


def missing(runs: Iterable[PlannedRun], output: Path) -> list[PlannedRun]:
    """Return the runs that are not complete, each scenario once."""
    once = {run.key: run for run in runs}
    return [run for run in once.values() if summary_of(run, output) is None]


def damaged(missing_runs: Iterable[PlannedRun], output: Path) -> list[Path]:
    """Return the folders of the missing runs that have one: they were complete once, and are repeated."""
    folders = (folder_of(run, output) for run in missing_runs)
    return [folder for folder in folders if folder.exists()]
