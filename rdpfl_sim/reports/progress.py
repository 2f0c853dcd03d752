"""Progress of one run, or of the runs of a strategy: a bar on a terminal, lines in a file or a pipe."""

from __future__ import annotations

from io import StringIO
from math import ceil, inf
from time import monotonic
from typing import IO, TYPE_CHECKING, Self, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from rdpfl_sim.reports.text import duration, escape_control, quantity, score, short_count

if TYPE_CHECKING:
    from pathlib import Path

    from rdpfl_sim.sweeps.plan import PlannedRun

REFRESH_S = 0.2
LINE_S = 5.0
SWEEP_LINE_S = 30.0

ProgressState: TypeAlias = tuple[int, float, float | None, int]  # the arguments of ProgressDisplay.update


class ProgressDisplay:
    """A context manager that shows the progress of a run. This one has no output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Show rounds done by all clients, simulated time, mean honest accuracy and messages sent.

        Called up to 100,000 times per second, so most calls must only compare the time.
        """


class LiveProgress(ProgressDisplay):
    """A bar for a terminal, redrawn in place."""

    def __init__(self, console: Console, total_rounds: int) -> None:
        self._bar = Progress(
            BarColumn(bar_width=None),
            TextColumn("{task.fields[state]}", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("left", style="progress.remaining"),
            console=console,
            expand=True,
            refresh_per_second=1 / REFRESH_S,
        )
        self._task = self._bar.add_task("", total=total_rounds, state="")
        self._total_rounds = total_rounds
        self._state: ProgressState = (0, 0.0, None, 0)
        self._due = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._show()
        self._bar.stop()

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Store the state; redraw the bar at most once per REFRESH_S."""
        self._state = rounds_done, time_s, accuracy, messages
        if monotonic() >= self._due:
            self._show()

    def _show(self) -> None:
        rounds_done, time_s, accuracy, messages = self._state
        state = (
            f"{short_count(rounds_done)}/{short_count(self._total_rounds)} rounds, {duration(time_s)}, "
            f"accuracy {score(accuracy)}, {short_count(messages)} messages"
        )
        self._bar.update(self._task, completed=rounds_done, state=state)
        self._due = monotonic() + REFRESH_S


class PlainProgress(ProgressDisplay):
    """Lines for a file or a pipe: one per tenth of the rounds, and one per LINE_S."""

    def __init__(self, stream: IO[str], total_rounds: int) -> None:
        self._stream = stream
        self._total_rounds = total_rounds
        self._state: ProgressState | None = None
        self._shown: ProgressState | None = None
        self._start = (0.0, 0)
        self._due = 0.0
        self._due_rounds = 0.0

    def __exit__(self, *error: object) -> None:
        if self._state != self._shown:
            self._show(is_last=True)

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Store the state; write a line if one is due."""
        if self._state is None:
            self._start_clock(rounds_done)
        self._state = rounds_done, time_s, accuracy, messages
        if rounds_done >= self._due_rounds or monotonic() >= self._due:
            self._show()

    def _start_clock(self, rounds_done: int) -> None:
        """Measure speed from this round: a resumed run does not start at round 0."""
        self._start = monotonic(), rounds_done
        self._due = monotonic() + LINE_S
        self._due_rounds = self._next_tenth(rounds_done)

    def _next_tenth(self, rounds_done: int) -> float:
        """Return the number of rounds at which the next line is due; the last line is written on exit."""
        tenths = 10 * rounds_done // self._total_rounds + 1
        return ceil(tenths * self._total_rounds / 10) if tenths < 10 else inf

    def _show(self, is_last: bool = False) -> None:
        assert self._state is not None
        rounds_done, time_s, accuracy, messages = self._shown = self._state
        now, (start, first_round) = monotonic(), self._start
        percent = 100 * rounds_done // self._total_rounds
        line = (
            f"{percent:3d}%  {rounds_done:,} of {self._total_rounds:,} client rounds, "
            f"{duration(time_s)} simulated, accuracy {score(accuracy)}, {messages:,} messages"
        )
        if not is_last and first_round < rounds_done < self._total_rounds:
            rest_s = (now - start) / (rounds_done - first_round) * (self._total_rounds - rounds_done)
            line += f", {duration(rest_s)} left"
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:  # a closed pipe or a full disk must not end the run
            self._stream = StringIO()
        self._due = now + LINE_S
        self._due_rounds = self._next_tenth(rounds_done)


def make_progress(quiet: bool, total_rounds: int, console: Console) -> ProgressDisplay:
    """Return a bar for a terminal, lines for any other output, or no output if `quiet`."""
    if quiet:
        return ProgressDisplay()
    if console.is_interactive:
        return LiveProgress(console, total_rounds)
    return PlainProgress(console.file, total_rounds)


class SweepProgress:
    """A `StrategyListener` that shows the number of complete runs, and prints failures immediately."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_interactive,
        )
        self.task = self.bar.add_task("runs", total=0)
        self.num_runs = self.num_done = self.num_found = 0
        self.fractions: dict[str, float] = {}
        self.failures: list[str] = []
        self._start_s = monotonic()
        self._line_due_s = 0.0
        self._last_line = ""

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._line_due_s = 0.0
        self._show()
        self.bar.stop()

    def expect(self, num_found: int, num_now: int, num_later: int) -> None:
        """Count runs that are already complete, and update the number of runs to come."""
        self.num_done += num_found
        self.num_found += num_found
        self.num_runs = self.num_done + num_now + num_later
        self._show()

    def repeats(self, folder: Path) -> None:
        """Print the folder of a run that is repeated."""
        text = f"{folder}: summary.json is missing or damaged; repeating the run"
        self.console.print(text, soft_wrap=True, markup=False)

    def started(self, run: PlannedRun) -> None:
        """Count a run that starts now."""
        self.fractions[run.key] = 0.0

    def advanced(self, run: PlannedRun, fraction: float) -> None:
        """Show the fraction of a run that is done."""
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
            self._line_due_s = monotonic() + SWEEP_LINE_S

    def _line(self, done: float) -> str:
        """Return the number of finished runs and the time left, estimated from the runs of this process."""
        text = f"{self.num_done:,} of {quantity(self.num_runs, 'run')}"
        if self.num_found < done < self.num_runs:
            run_s = (monotonic() - self._start_s) / (done - self.num_found)
            text += f", {duration(run_s * (self.num_runs - done))} left"
        return text
