"""Strategies choose the runs of a sweep: their interface, and the loop that executes any of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rdpfl_sim.sweeps.plan import PlannedRun, damaged_folders, missing_runs
from rdpfl_sim.sweeps.runner import Runner, SweepListener


class Strategy(Protocol):
    """Chooses runs in rounds, each from the results of the rounds before.

    A strategy is deterministic and saves no state of its own: an interrupted command starts it again, and
    complete runs are not repeated.
    """

    def next_runs(self) -> Sequence[PlannedRun]:
        """Return the runs of the next round, complete ones included, or none at the end.

        The same runs are returned until their results are read.
        """

    def num_later_runs(self) -> int:
        """Return how many runs may follow the next round; only the progress display uses this number."""

    def read_results(self, output: Path) -> None:
        """Read the results of this round; runs that failed are missing in `output`."""


class StrategyListener(SweepListener, Protocol):
    """Receives the progress of a strategy and of its runs."""

    def expect(self, num_found: int, num_now: int, num_later: int) -> None:
        """Handle a new round: its complete and its missing runs, and how many runs may follow it."""

    def repeats(self, folder: Path) -> None:
        """Handle a run that is repeated because its summary is missing or damaged."""


def run_strategy(strategy: Strategy, runner: Runner, output: Path, listener: StrategyListener) -> None:
    """Execute the missing runs of every round; a run that fails is not repeated in a later round."""
    requested: set[str] = set()
    while runs := strategy.next_runs():
        new = [run for run in runs if run.key not in requested]
        missing = missing_runs(new, output)
        for folder in damaged_folders(missing, output):
            listener.repeats(folder)
        listener.expect(len(new) - len(missing), len(missing), strategy.num_later_runs())
        if missing:
            runner.run(missing, output, listener)
        requested.update(run.key for run in new)
        strategy.read_results(output)
    listener.expect(0, 0, 0)
