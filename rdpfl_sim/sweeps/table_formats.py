"""Write the tables of a sweep as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from rdpfl_sim.sweeps.tables import Labels, Table


def markdown_page(tables: Sequence[Table]) -> str:
    """Return all tables, each with standard deviations and again with 95 % intervals."""
    parts = [
        f"## {table.title}\n\n{markdown(version)}\n\n{version.note}\n"
        for table in tables
        for version in table.versions
    ]
    return "\n".join(parts)


def latex_page(tables: Sequence[Table]) -> str:
    """Return all tables, each with standard deviations and again with 95 % intervals."""
    parts = [
        f"% {version.title}: {version.note}\n{latex(version)}\n"
        for table in tables
        for version in table.versions
    ]
    return "\n".join(parts)


def markdown(table: Table) -> str:
    """Return a table in Markdown: mean ± spread, and the published number in brackets."""
    head = [*table.corner, *(" / ".join(column) for column in table.columns)]
    lines = [head, ["---"] * len(head)]
    lines += [[*row, *(table.text(row, column) for column in table.columns)] for row in table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def latex(table: Table) -> str:
    """Return a table in LaTeX, in booktabs style, with one line of headings per axis."""
    depth = max((len(column) for column in table.columns), default=1)
    lines = [_latex_heading(table, level, last=level == depth - 1) for level in range(depth)]
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


def _latex_heading(table: Table, level: int, last: bool) -> str:
    """Return one line of headings; adjacent equal headings are merged."""
    cells = [_escape(name) if last else "" for name in table.corner]
    for labels, group in groupby(table.columns, key=lambda column: column[: level + 1]):
        width = len(list(group))
        cells.append(
            _escape(labels[-1]) if width == 1 else f"\\multicolumn{{{width}}}{{c}}{{{_escape(labels[-1])}}}"
        )
    return " & ".join(cells) + " \\\\"


def _escape(text: str) -> str:
    """Escape the characters that are special in LaTeX."""
    text = text.replace("\\", "\\textbackslash ")
    return (
        re.sub(r"([&%$#_{}])", r"\\\1", text)
        .replace("~", "\\textasciitilde ")
        .replace("^", "\\textasciicircum ")
    )
