"""The interface of sweep runners, and of the listeners that they report to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun


class SweepListener(Protocol):
    """Receives the progress of a sweep."""

    def started(self, run: PlannedRun) -> None:
        """Handle the start of a run."""

    def advanced(self, run: PlannedRun, fraction: float) -> None:
        """Handle the progress of a run: the fraction that is done."""

    def ended(self, run: PlannedRun, error: str | None) -> None:
        """Handle the end of a run: complete, or failed with an error message."""


class Runner(Protocol):
    """Executes many scenarios at a time, each with one torch thread."""

    def prepare(self) -> None:
        """Start slow preparations in the background; raise a `ScenarioError` if a package is missing."""

    def run(self, runs: Sequence[PlannedRun], output: Path, listener: SweepListener) -> None:
        """Execute all runs; a run that fails does not stop the others.

        The folder of a run appears in `output` when the run is complete. SIGINT and SIGTERM stop and discard
        the runs that are not complete, and raise KeyboardInterrupt.
        """

    def close(self) -> None:
        """Release the resources that all runs shared."""
