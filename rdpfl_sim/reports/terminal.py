"""Terminal output of warnings, problems, labelled facts and results of `rdpfl-sim verify`.

User-supplied text is shown literally; markup and control sequences have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import rich.box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.text import escape_control, quantity

if TYPE_CHECKING:
    from rdpfl_sim.records.reader import Record

STYLES = {"ok": "green", "violated": "bold red", "not checked": "yellow"}


def warning_lines(warnings: Sequence[str]) -> RenderableType:
    """Return one line per warning."""
    return Group(*(Text(f"warning: {escape_control(warning)}", style="yellow") for warning in warnings))


def problem_lines(problems: Sequence[str], file: str) -> RenderableType:
    """Return the number of problems in the scenario `file`, then one paragraph per problem."""
    count = quantity(len(problems), "problem")
    title = Text.assemble((escape_control(file), "bold"), f" cannot be run: {count}", style="red")
    lines = Table.grid(padding=(0, 1))
    for problem in problems:
        path, colon, rest = escape_control(problem).partition(": ")
        lines.add_row("  -", Text.assemble((path, "bold" if colon else ""), colon, rest, overflow="fold"))
    return Group(title, lines)


def fact_grid(facts: Iterable[tuple[str, str]]) -> Table:
    """Return a grid with one label and text per row."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(Text(label, style="dim"), Text(escape_control(text)))
    return grid


def verification_table(run: str, checks: Sequence[Record]) -> RenderableType:
    """Return one row per check, then details of checks that failed or were not possible.

    The table has at most 100 columns, also in a pipe.
    """
    table = Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("check", no_wrap=True)
    table.add_column("invariant", max_width=66)
    table.add_column("items", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for check in checks:
        outcome = Text(check["outcome"], style=STYLES[check["outcome"]])
        table.add_row(check["check"], check["sentence"], f"{check['items']:,}", outcome)
    details = [_detail(check) for check in checks if check["outcome"] != "ok"]
    return Group(Text(escape_control(run), style="bold"), table, *details, _totals(checks))


def _detail(check: Record) -> RenderableType:
    outcome = check["outcome"]
    if outcome == "violated":
        place = "" if check["line"] is None else f" at line {check['line']:,} of events.jsonl"
        times = "once" if check["violations"] == 1 else f"{check['violations']:,} times, first"
        outcome = f"violated {times}{place}"
    lines = [escape_control(line) for line in str(check["what"]).split("\n")]
    return Text(f"{check['check']}: {outcome}: " + "\n".join(lines), style=STYLES[check["outcome"]])


def _totals(checks: Sequence[Record]) -> Text:
    counts = {outcome: sum(check["outcome"] == outcome for check in checks) for outcome in STYLES}
    totals = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    return Text(f"{len(checks)} checks: {', '.join(totals)}\n", style="bold")
