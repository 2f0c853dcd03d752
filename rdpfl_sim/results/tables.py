"""Tables of a sweep: means with 95 % intervals over seeds, and published numbers; Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Protocol, TypeAlias

from rdpfl_sim.intervals import EXPLANATION, MeanInterval, mean_interval
from rdpfl_sim.results.sweep import finite_number
from rdpfl_sim.sweeps.plan import SYMBOLS
from rdpfl_sim.sweeps.spec import SweepSpec, TableLayout

Labels: TypeAlias = tuple[str, ...]


class Labelled(Protocol):
    """The fields of a run that are used in tables."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its cases, by axis."""


Results: TypeAlias = Sequence[tuple[Labelled, Mapping[str, object]]]
"""Complete runs and their summaries with dotted keys."""


@dataclass(frozen=True)
class Table:
    """Means and intervals by row and column, with published numbers."""

    title: str
    corner: Labels
    """the axes whose cases are the rows"""
    across: Labels
    """the axes whose cases are the columns"""
    rows: list[Labels]
    columns: list[Labels]
    cells: dict[tuple[Labels, Labels], MeanInterval]
    published: dict[tuple[Labels, Labels], float]
    digits: int

    @property
    def has_intervals(self) -> bool:
        """Whether a cell has several seeds."""
        return any(estimate.half_width is not None for estimate in self.cells.values())

    @property
    def note(self) -> str:
        """The axes of the columns and the number of seeds."""
        nums = sorted({estimate.num for estimate in self.cells.values()})
        if not nums:
            return "no run is complete"
        seeds = " to ".join(dict.fromkeys(map(str, (nums[0], nums[-1]))))
        text = f"{seeds} seeds" if nums[-1] > 1 else "one seed"
        text = f"columns: {', '.join(self.across)}; {text}" if self.across else text
        return f"{text}; published numbers in brackets" if self.published else text

    def text(self, row: Labels, column: Labels, plus_minus: str = " ± ") -> str:
        """Return the text of a cell: mean ± interval over seeds (published number)."""
        estimate, published = self.cells.get((row, column)), self.published.get((row, column))
        text = "-"
        if estimate is not None:
            text = f"{estimate.mean:.{self.digits}f}"
            interval = estimate.half_width
            text += "" if interval is None else f"{plus_minus}{interval:.{self.digits}f}"
        return text if published is None else f"{text} ({published:.{self.digits}f})"


def make_tables(sweep: SweepSpec, results: Results) -> list[Table]:
    """Return the tables that the sweep defines, or one with all its cases."""
    return [_make_table(sweep, layout, results) for layout in sweep.table or [TableLayout()]]


def _make_table(sweep: SweepSpec, layout: TableLayout, results: Results) -> Table:
    others = [axis.name for axis in sweep.axes if axis.name not in (*layout.columns, *layout.where)]
    rows = layout.rows or others
    values: dict[tuple[Labels, Labels], list[float]] = {}
    for run, summary in results:
        if any(run.labels[axis] != label for axis, label in layout.where.items()):
            continue
        row = tuple(run.labels[axis] for axis in rows) or ("all",)
        for name, path in layout.metrics.items():
            value = finite_number(summary.get(path))
            if value is not None:
                column = (*(run.labels[axis] for axis in layout.columns), name)
                values.setdefault((row, column), []).append(value)
    cells = {(row, _heading(layout, column)): mean_interval(found) for (row, column), found in values.items()}
    cases = {axis.name: [case.label for case in axis.cases] for axis in sweep.axes}
    all_rows = list(product(*(cases[axis] for axis in rows))) if rows else [("all",)]
    all_columns = [
        _heading(layout, labels)
        for labels in product(*(cases[axis] for axis in layout.columns), layout.metrics)
    ]
    published = {
        (row, column): number
        for row, column in product(all_rows, all_columns)
        if (number := layout.published([*row, *column])) is not None
    }
    return Table(
        title=layout.title or sweep.name,
        corner=tuple(rows) or ("",),
        across=tuple(layout.columns),
        rows=[row for row in all_rows if any(key[0] == row for key in cells)],
        columns=[column for column in all_columns if any(key[1] == column for key in cells)],
        cells=cells,
        published=published,
        digits=layout.digits,
    )


def _heading(layout: TableLayout, labels: Labels) -> Labels:
    """Return the labels of a column; the name of a single metric is omitted unless it is the only label."""
    return labels[:-1] if len(layout.metrics) == 1 and layout.columns else labels


def markdown_page(tables: Sequence[Table]) -> str:
    """Return all tables in Markdown, and an explanation of the intervals."""
    pages = [f"## {table.title}\n\n{markdown(table)}\n\n{table.note}\n" for table in tables]
    return "\n".join([*pages, *(f"{line}\n" for line in explanations(tables))])


def latex_page(tables: Sequence[Table], words: Mapping[str, str]) -> str:
    """Return all tables in LaTeX, after an explanation of the intervals; `words` are names of axes."""
    pages = [f"% {table.title}: {table.note}\n{latex(table, words)}\n" for table in tables]
    return "\n".join([*(f"% {line}\n" for line in explanations(tables)), *pages])


def explanations(tables: Sequence[Table]) -> list[str]:
    """Return an explanation of the intervals, if a table has some."""
    return [EXPLANATION] if any(table.has_intervals for table in tables) else []


def markdown(table: Table) -> str:
    """Return a table in Markdown: mean ± interval, and the published number in brackets."""
    head = [*table.corner, *(" / ".join(column) for column in table.columns)]
    lines = [head, ["---"] * len(head)]
    lines += [[*row, *(table.text(row, column) for column in table.columns)] for row in table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def latex(table: Table, words: Mapping[str, str]) -> str:
    """Return a table in LaTeX, in booktabs style, with one line of headings per axis.

    `words` are the headings of the axes of the rows; the others have their names.
    """
    depth = max((len(column) for column in table.columns), default=1)
    corner = [words.get(name, name) for name in table.corner]
    lines = [
        _latex_heading(table.columns, level, corner if level == depth - 1 else [""] * len(corner))
        for level in range(depth)
    ]
    lines.append("\\midrule")
    before: Labels = ()
    for row in table.rows:
        if before and len(row) > 1 and row[0] != before[0]:
            lines.append("\\midrule")
        labels = [
            "" if before[: i + 1] == row[: i + 1] and i < len(row) - 1 else _escape(label)
            for i, label in enumerate(row)
        ]
        cells = [table.text(row, column, " $\\pm$ ") for column in table.columns]
        lines.append(" & ".join([*labels, *cells]) + " \\\\")
        before = row
    layout = "l" * len(table.corner) + "c" * len(table.columns)
    return "\n".join(
        [f"\\begin{{tabular}}{{{layout}}}", "\\toprule", *lines, "\\bottomrule", "\\end{tabular}"]
    )


def _latex_heading(columns: Sequence[Labels], level: int, corner: Sequence[str]) -> str:
    """Return one line of headings; adjacent equal headings are merged."""
    cells = [*map(_escape, corner)]
    for labels, group in groupby(columns, key=lambda column: column[: level + 1]):
        width = len(list(group))
        cells.append(
            _escape(labels[-1]) if width == 1 else f"\\multicolumn{{{width}}}{{c}}{{{_escape(labels[-1])}}}"
        )
    return " & ".join(cells) + " \\\\"


def _escape(text: str) -> str:
    """Escape the characters that are special in LaTeX, and write Greek letters as symbols."""
    text = text.replace("\\", "\\textbackslash ")
    text = (
        re.sub(r"([&%$#_{}])", r"\\\1", text)
        .replace("~", "\\textasciitilde ")
        .replace("^", "\\textasciicircum ")
    )
    for name, letter in SYMBOLS.items():
        text = text.replace(letter, f"$\\{name}$")
    return text
