"""Warnings, problems and labelled facts on a terminal.

User-supplied text is shown literally: neither as markup nor as control sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.text import escape_control, quantity


def warning_lines(warnings: Sequence[str]) -> RenderableType:
    """Return one line per warning."""
    return Group(*(Text(f"warning: {escape_control(warning)}", style="yellow") for warning in warnings))


def problem_lines(problems: Sequence[str], file: str) -> RenderableType:
    """Return the number of problems of the scenario in `file`, then one paragraph per problem."""
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
