"""Progress of a run: a bar on a terminal, lines in a file or a pipe."""

from __future__ import annotations

from io import StringIO
from math import ceil, inf
from time import monotonic
from types import TracebackType
from typing import IO, Protocol, Self, TypeAlias

import rich.progress
from rich.console import Console

from rdpfl_sim.reports.text import duration, score, short_count

REFRESH_S = 0.2
LINE_S = 5.0

State: TypeAlias = tuple[int, float, float | None, int]  # the arguments of ProgressDisplay.update


class ProgressDisplay(Protocol):
    """A context in which the progress of a run is shown."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Show rounds done by all clients, simulated time, mean honest accuracy and messages sent.

        Called up to 100,000 times per second: most calls may only compare the time.
        """


class SilentProgress:
    """A display for --quiet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Show nothing."""


class LiveProgress:
    """A bar for a terminal, redrawn in place."""

    def __init__(self, console: Console, total_rounds: int) -> None:
        self._bar = rich.progress.Progress(
            rich.progress.BarColumn(bar_width=None),
            rich.progress.TextColumn("{task.fields[state]}", markup=False),
            rich.progress.TimeRemainingColumn(compact=True),
            rich.progress.TextColumn("left", style="progress.remaining"),
            console=console,
            expand=True,
            refresh_per_second=1 / REFRESH_S,
        )
        self._task = self._bar.add_task("", total=total_rounds, state="")
        self._total_rounds = total_rounds
        self._state: State = (0, 0.0, None, 0)
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


class PlainProgress:
    """Lines for a file or a pipe: one per tenth of the rounds, and one per LINE_S."""

    def __init__(self, stream: IO[str], total_rounds: int) -> None:
        self._stream = stream
        self._total_rounds = total_rounds
        self._state: State | None = None
        self._shown: State | None = None
        self._start = (0.0, 0)
        self._due = 0.0
        self._due_rounds = 0.0

    def __enter__(self) -> Self:
        return self

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
        """Return the rounds after which the next line is due; the last line is written at the exit."""
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
    """Return a bar if `console` writes to a terminal, lines if not, nothing if `quiet`."""
    if quiet:
        return SilentProgress()
    if console.is_interactive:
        return LiveProgress(console, total_rounds)
    return PlainProgress(console.file, total_rounds)
