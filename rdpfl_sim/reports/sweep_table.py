"""Tables of a sweep on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import rich.table
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.text import Text

from rdpfl_sim.reports.text import escape_control
from rdpfl_sim.sweeps.tables import explanations

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.tables import Labels, Table


def sweep_tables(tables: Sequence[Table], width: int) -> RenderableType:
    """Return the tables of a sweep and an explanation of their intervals.

    A table that is too wide is split by columns.
    """
    parts: list[RenderableType] = []
    for table in tables:
        parts.append(Text(escape_control(table.title), style="bold"))
        parts += [_table(table, columns) for columns in _columns_that_fit(table, width)]
        parts.append(Text(table.note))
    return Group(*parts, *map(Text, explanations(tables)))


def _columns_that_fit(table: Table, width: int) -> list[list[Labels]]:
    labels = [max(len(label) for label in column) for column in zip(table.corner, *table.rows, strict=True)]
    label_width = 1 + sum(labels) + 2 * len(labels)  # the left edge; a blank and a divider per column
    groups: list[list[Labels]] = [[]]
    room = width - label_width
    for column in table.columns:
        needed = 2 + max(len(line) for line in [*column, *(table.text(row, column) for row in table.rows)])
        if groups[-1] and needed > room:
            groups.append([])
            room = width - label_width
        groups[-1].append(column)
        room -= needed
    return groups


def _table(table: Table, columns: Sequence[Labels]) -> rich.table.Table:
    shown = rich.table.Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in table.corner:
        shown.add_column(escape_control(name), vertical="bottom")
    for column in columns:
        shown.add_column("\n".join(map(escape_control, column)), justify="right")
    previous: Labels = ()
    for row in table.rows:
        if previous and len(row) > 1 and row[0] != previous[0]:
            shown.add_section()
        previous = row
        shown.add_row(*map(escape_control, row), *(table.text(row, column) for column in columns))
    return shown
