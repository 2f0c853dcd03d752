"""What a user sees of a sweep in the terminal."""

from __future__ import annotations

from typing import Any, Self

import rich.box
from rich.console import Console, Group, RenderableType
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
            labels = (f"{axis} = {label}" for axis, label in run.labels.items())
            self.failures.append(f"{', '.join([*labels, f'seed {run.scenario.seed}'])}: {error}")
            self.console.print(Text(f"failed: {plain(self.failures[-1])}", style="red"))

    def _show(self) -> None:
        self.bar.update(self.task, completed=self.num_done + sum(self.fractions.values()))


def sweep_table(table: Any, width: int) -> RenderableType:
    """A table of a sweep, cut into several below each other if it is wider than the terminal."""
    labels = [max(len(label) for label in column) for column in zip(table.corner, *table.rows, strict=True)]
    used = 1 + sum(labels) + 2 * len(labels)  # the edge, and behind every column a blank and a divider
    parts: list[list[Any]] = [[]]
    room = width - used
    for column in table.columns:
        needed = 2 + max(len(line) for line in [*column, *(table.text(row, column) for row in table.rows)])
        if parts[-1] and needed > room:
            parts.append([])
            room = width - used
        parts[-1].append(column)
        room -= needed
    return Group(
        Text(plain(table.title), style="bold"), *(_part(table, part) for part in parts), Text(table.note)
    )


def _part(table: Any, columns: list[Any]) -> Table:
    shown = Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in table.corner:
        shown.add_column(plain(name), vertical="bottom")
    for column in columns:
        shown.add_column("\n".join(map(plain, column)), justify="right")
    before: Any = None
    for row in table.rows:
        new_group = before is not None and len(row) > 1 and row[0] != before[0]
        if new_group:
            shown.add_section()
        shown.add_row(*map(plain, row), *(table.text(row, column) for column in columns))
        before = row
    return shown
