"""What a user sees of a sweep in the terminal."""

from __future__ import annotations

from typing import Any, Self

import rich.box
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rdpfl_sim.report.terminal import plain


class SweepProgress:
    """A bar for a whole sweep; what fails is told at once."""

    def __init__(self, console: Console, num_runs: int, num_done: int) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self.task = self.bar.add_task("runs", total=num_runs, completed=num_done)
        self.num_done = num_done
        self.fractions: dict[str, float] = {}
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()

    def started(self, run: Any) -> None:
        """A run begins."""
        self.fractions[run.key] = 0.0

    def advanced(self, run: Any, fraction: float) -> None:
        """So much of a run is done."""
        self.fractions[run.key] = fraction
        self._show()

    def ended(self, run: Any, error: str | None) -> None:
        """A run is complete, or has failed."""
        del self.fractions[run.key]
        self.num_done += 1
        self._show()
        if error is not None:
            where = ", ".join(f"{axis} = {label}" for axis, label in run.labels.items())
            self.failures.append(f"{where}, seed {run.scenario.seed}: {error}")
            self.console.print(Text(f"failed: {plain(self.failures[-1])}", style="red"))

    def _show(self) -> None:
        self.bar.update(self.task, completed=self.num_done + sum(self.fractions.values()))


def sweep_table(table: Any) -> RenderableType:
    """A table of a sweep: mean and standard deviation over seeds, and the published number in brackets."""
    shown = Table(title=plain(table.title), box=rich.box.SIMPLE_HEAD, title_justify="left")
    shown.add_column(plain(table.corner))
    for column in table.columns:
        shown.add_column(plain(column), justify="right")
    for row in table.rows:
        shown.add_row(plain(row), *(table.text(row, column) for column in table.columns))
    return shown
