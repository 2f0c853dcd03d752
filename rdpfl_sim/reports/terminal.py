"""What a user sees in the terminal: progress, the table at the end of a run, what is wrong with a scenario.

What a user wrote is shown as it is: never read as markup, never sent as a control sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from time import monotonic
from types import TracebackType
from typing import IO, Any, Protocol, Self, TypeAlias

import rich.box
import rich.progress
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.text import (
    duration,
    escape_control,
    first_items,
    multiple,
    quantity,
    score,
    short_count,
)

REFRESH_S = 0.2
LINE_S = 5.0
FATES = ("used", "stale", "duplicate", "rejected", "left_over")  # of a message that was delivered

State: TypeAlias = tuple[int, float, float | None, int]  # the arguments of Progress.update


class Progress(Protocol):
    """Shows how far a run has come."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Rounds that all clients have done, simulated time, mean honest accuracy, messages sent.

        Called up to 100,000 times a second: most calls must only look at the clock.
        """


class SilentProgress:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Do nothing."""


class LiveProgress:
    """A bar that is redrawn in place, for a terminal."""

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
        """Keep the state; show it if it is time."""
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
    """A line at every tenth of the rounds and after every few seconds, for a file or a pipe."""

    def __init__(self, stream: IO[str], total_rounds: int) -> None:
        self._stream = stream
        self._total_rounds = total_rounds
        self._state: State | None = None
        self._shown: State | None = None
        self._start = (0.0, 0)
        self._due = 0.0
        self._due_rounds = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._state != self._shown:
            self._show()

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        """Keep the state; write it if it is time."""
        if self._state is None:
            self._begin(rounds_done)
        self._state = rounds_done, time_s, accuracy, messages
        if rounds_done >= self._due_rounds or monotonic() >= self._due:
            self._show()

    def _begin(self, rounds_done: int) -> None:
        """Measure speed from here: a resumed run does not begin at round 0."""
        self._start = monotonic(), rounds_done
        self._due = monotonic() + LINE_S
        self._due_rounds = self._next_tenth(rounds_done)

    def _next_tenth(self, rounds_done: int) -> int:
        tenths = 10 * rounds_done // self._total_rounds + 1
        return -(-tenths * self._total_rounds // 10)  # rounded up

    def _show(self) -> None:
        assert self._state is not None
        rounds_done, time_s, accuracy, messages = self._shown = self._state
        now, (start, first_round) = monotonic(), self._start
        percent = 100 * rounds_done // self._total_rounds
        line = f"{percent:3d}%  {rounds_done:,} of {self._total_rounds:,} client rounds, "
        line += f"{duration(time_s)} simulated"
        line += f", accuracy {score(accuracy)}, {messages:,} messages"
        if first_round < rounds_done < self._total_rounds:
            rest_s = (now - start) / (rounds_done - first_round) * (self._total_rounds - rounds_done)
            line += f", {duration(rest_s)} left"
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:  # nobody reads any more, or the log's disk is full: no reason to end the run
            self._stream = StringIO()
        self._due = now + LINE_S
        self._due_rounds = self._next_tenth(rounds_done)


def make_progress(quiet: bool, total_rounds: int, console: Console) -> Progress:
    """The progress display that suits where `console` writes to."""
    if quiet:
        return SilentProgress()
    if console.is_interactive:
        return LiveProgress(console, total_rounds)
    return PlainProgress(console.file, total_rounds)


def summary_table(summary: dict[str, Any]) -> RenderableType:
    """What came out of a run, in at most 80 columns."""
    num_clients, num_byzantine = summary["num_clients"], len(summary["byzantine"])
    title = Text.assemble(
        (escape_control(summary["name"]), "bold"),
        f", seed {summary['seed']}: {summary['status']}{_how_far(summary)}",
    )
    facts = (
        f"{summary['method']}, attack {summary['attack']}, topology {summary['topology']}, "
        f"{num_clients:,} clients, {num_byzantine:,} Byzantine, {summary['rounds']:,} rounds"
    )
    scores = Table(box=rich.box.SIMPLE_HEAD)
    scores.add_column("accuracy")
    for heading in ("personal mean", "worst", "10th pct.", "spread", "global mean"):
        scores.add_column(heading, justify="right")
    for group, num, style in (("honest", num_clients - num_byzantine, "bold"), ("all", num_clients, "")):
        kinds = summary["accuracy"][group]
        personal, overall = kinds["personal"] or {}, kinds["global"] or {}
        values = [*(personal.get(key) for key in ("mean", "worst", "p10", "spread")), overall.get("mean")]
        scores.add_row(f"{group} ({num:,})", *map(score, values), style=style)

    lines = Table.grid(padding=(0, 2))
    for label, text in _lines(summary):
        lines.add_row(Text(label, style="dim"), Text(text))
    return Group(title, Text(escape_control(facts)), scores, lines)


def warning_lines(warnings: Sequence[str]) -> RenderableType:
    """What a user should know before believing a result, each on a line of its own."""
    return Group(*(Text(f"warning: {escape_control(warning)}", style="yellow") for warning in warnings))


def problems(error_problems: Sequence[str], file: str) -> RenderableType:
    """Everything that is wrong with the scenario in `file`, each problem on a line of its own."""
    title = Text.assemble(
        (escape_control(file), "bold"),
        f" cannot be run: {quantity(len(error_problems), 'problem')}",
        style="red",
    )
    lines = Table.grid(padding=(0, 1))
    for problem in error_problems:
        path, colon, rest = escape_control(problem).partition(": ")
        lines.add_row("  -", Text.assemble((path, "bold" if colon else ""), colon, rest, overflow="fold"))
    return Group(title, lines)


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts below the table: a label and a sentence each."""
    count, neighbourhood, telemetry = summary["messages"], summary["neighbourhood"], summary["telemetry"]
    lines = [
        ("messages", f"{count['sent']:,} sent: {_parts(count, 'delivered', 'lost', 'in_flight')}"),
        ("", f"{count['delivered']:,} delivered: {_parts(count, *FATES)}"),
    ]
    if outside := neighbourhood["outside_threat_model"]:
        lines.append(("neighbours", f"half or more are Byzantine for honest clients {first_items(outside)}"))
    if isolated := neighbourhood["isolated"]:
        lines.append(("isolated", f"clients without neighbours: {first_items(isolated)}"))
    rounds, liars = telemetry["rounds"], telemetry["messages_from"]["byzantine"]
    if rounds["all"]["clipped"] is not None:
        clipped, bounded = rounds["all"]["clipped"], rounds["all"]["bounded"]
        lines.append(
            ("estimator", f"clipped in {clipped:.1%} of honest rounds, bounded by G_d in {bounded:.1%}")
        )
    if shares := telemetry.get("neighbour_share"):
        times = multiple(shares["p50"])
        lines.append(("step", f"neighbours move a model {times} times as far as its own training (median)"))
    if liars["relative_weight"] is not None:
        lines.append(
            (
                "influence",
                f"a Byzantine message weighs {liars['relative_weight']:.2f} of an equal share; "
                f"{liars['ignored']:.0%} are ignored",
            )
        )
    if summary["num_faults"]:
        lines.append(("faults", f"{summary['num_faults']:,} changes of the network or its clients"))
    wall_s = summary["wall"]["seconds"]
    lines.append(
        ("time", f"{duration(summary['simulated_s'])} simulated, {duration(wall_s)} on the wall clock")
    )
    if "trained_on" in summary["wall"]:  # not in the summaries of earlier versions
        lines.append(("device", escape_control(summary["wall"]["trained_on"])))
    return [*lines, ("digest", summary["digest"][:16])]


def _how_far(summary: dict[str, Any]) -> str:
    least, most = summary["rounds_done"]
    if least == summary["rounds"]:
        return ""
    return f" ({least:,} rounds done)" if least == most else f" ({least:,} to {most:,} rounds done)"


def _parts(count: dict[str, int], first: str, *others: str) -> str:
    """The first part, and what there is of the others."""
    keys = [first, *(key for key in others if count[key])]
    return ", ".join(f"{count[key]:,} {key.replace('_', ' ')}" for key in keys)
