"""What a user sees of a sweep in the terminal."""

from __future__ import annotations

from time import monotonic
from typing import Any, Self

import rich.box
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.text import duration, escape_control

LINE_S = 30.0


class SweepProgress:
    """A bar for a whole sweep, or in a file or pipe a line now and then; what fails is told at once."""

    def __init__(self, console: Console, num_runs: int, num_done: int) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_interactive,
        )
        self.task = self.bar.add_task("runs", total=num_runs, completed=num_done)
        self.num_runs = num_runs
        self.num_done = self.num_known = num_done
        self.fractions: dict[str, float] = {}
        self.failures: list[str] = []
        self._start_s = monotonic()
        self._due = 0.0
        self._told = ""

    def __enter__(self) -> Self:
        self.bar.start()
        self._show()
        return self

    def __exit__(self, *exception: object) -> None:
        self._due = 0.0
        self._show()
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
            self.console.print(Text(f"failed: {escape_control(self.failures[-1])}", style="red"))

    def _show(self) -> None:
        done = self.num_done + sum(self.fractions.values())
        self.bar.update(self.task, completed=done, total=self.num_runs)
        if self.bar.disable and self.num_runs > 0 and monotonic() >= self._due:
            line = self._line(done)
            if line != self._told:
                self.console.print(Text(line))
            self._told = line
            self._due = monotonic() + LINE_S

    def _line(self, done: float) -> str:
        """How far it is, and how long it takes at the speed of the runs that were missing."""
        text = f"{self.num_done:,} of {self.num_runs:,} runs"
        if self.num_known < done < self.num_runs:
            run_s = (monotonic() - self._start_s) / (done - self.num_known)
            text += f", {duration(run_s * (self.num_runs - done))} left"
        return text


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
        Text(escape_control(table.title), style="bold"),
        *(_part(table, part) for part in parts),
        Text(table.note),
    )


def _part(table: Any, columns: list[Any]) -> Table:
    shown = Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in table.corner:
        shown.add_column(escape_control(name), vertical="bottom")
    for column in columns:
        shown.add_column("\n".join(map(escape_control, column)), justify="right")
    before: Any = None
    for row in table.rows:
        new_group = before is not None and len(row) > 1 and row[0] != before[0]
        if new_group:
            shown.add_section()
        shown.add_row(*map(escape_control, row), *(table.text(row, column) for column in columns))
        before = row
    return shown
