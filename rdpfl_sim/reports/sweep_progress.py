"""Progress of a sweep or a breakdown search: a bar on a terminal, lines in a file or a pipe."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from rdpfl_sim.reports.text import duration, escape_control

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun

LINE_S = 30.0


class SweepProgress:
    """A `SweepListener` that shows how many runs are complete, and every failure at once."""

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
        self.num_done = self.num_found = num_done
        self.fractions: dict[str, float] = {}
        self.failures: list[str] = []
        self._start_s = monotonic()
        self._line_due_s = 0.0
        self._last_line = ""

    def __enter__(self) -> Self:
        self.bar.start()
        self._show()
        return self

    def __exit__(self, *exception: object) -> None:
        self._line_due_s = 0.0
        self._show()
        self.bar.stop()

    def started(self, run: PlannedRun) -> None:
        """Count a run that starts now."""
        self.fractions[run.key] = 0.0

    def advanced(self, run: PlannedRun, fraction: float) -> None:
        """Show that this fraction of a run is done."""
        self.fractions[run.key] = fraction
        self._show()

    def ended(self, run: PlannedRun, error: str | None) -> None:
        """Count a run that is complete or has failed, and print its error."""
        del self.fractions[run.key]
        self.num_done += 1
        self._show()
        if error is not None:
            labels = [f"{axis} = {label}" for axis, label in run.labels.items()]
            self.failures.append(f"{', '.join([*labels, f'seed {run.scenario.seed}'])}: {error}")
            self.console.print(Text(f"failed: {escape_control(self.failures[-1])}", style="red"))

    def _show(self) -> None:
        done = self.num_done + sum(self.fractions.values())
        self.bar.update(self.task, completed=done, total=self.num_runs)
        if self.bar.disable and self.num_runs > 0 and monotonic() >= self._line_due_s:
            line = self._line(done)
            if line != self._last_line:
                self.console.print(Text(line))
            self._last_line = line
            self._line_due_s = monotonic() + LINE_S

    def _line(self, done: float) -> str:
        """Return the number of runs done and the time left; runs found complete say nothing about speed."""
        text = f"{self.num_done:,} of {self.num_runs:,} runs"
        if self.num_found < done < self.num_runs:
            run_s = (monotonic() - self._start_s) / (done - self.num_found)
            text += f", {duration(run_s * (self.num_runs - done))} left"
        return text


class BreakdownProgress(SweepProgress):
    """Progress of a search whose number of runs becomes known on the way."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, 0, 0)

    def expect(self, num_found: int, num_now: int, num_later: int) -> None:
        """Add runs that were found complete, and expect those that start now or may follow."""
        self.num_done += num_found
        self.num_found += num_found
        self.num_runs = self.num_done + num_now + num_later
        self._show()
