"""Tables of a sweep: layouts, means with 95 % intervals, published numbers; Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import groupby, product
from pathlib import Path
from typing import TypeAlias

from pydantic import Field, ValidationError

from rdpfl_sim.components.options import Count
from rdpfl_sim.components.schema import Strict, suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.files import JsonObject, write_atomically
from rdpfl_sim.intervals import EXPLANATION, MeanInterval, mean_interval
from rdpfl_sim.records.summary import moment_of
from rdpfl_sim.results.run import flatten
from rdpfl_sim.results.sweep import HEADLINE, Sweep, SweepRun
from rdpfl_sim.toml import TomlTable, join_path

Labels: TypeAlias = tuple[str, ...]

SYMBOLS = {
    "alpha": "\N{GREEK SMALL LETTER ALPHA}",
    "epsilon": "\N{GREEK SMALL LETTER EPSILON}",
    "gamma": "\N{GREEK SMALL LETTER GAMMA}",
    "kappa": "\N{GREEK SMALL LETTER KAPPA}",
    "lambda": "\N{GREEK SMALL LETTER LAMDA}",
    "mu": "\N{GREEK SMALL LETTER MU}",
    "rho": "\N{GREEK SMALL LETTER RHO}",
    "sigma": "\N{GREEK SMALL LETTER SIGMA}",
    "theta": "\N{GREEK SMALL LETTER THETA}",
}
"""Greek letters by their names in settings and in LaTeX."""


class TableLayout(Strict):
    """The layout of a table of results."""

    title: str = ""
    rows: list[str] = Field(default=[], description="axes whose cases are the rows (default: all other axes)")
    columns: list[str] = Field(default=[], description="axes whose cases are the columns")
    metrics: dict[str, str] = Field(
        default={"accuracy": HEADLINE},
        min_length=1,
        description="metrics to show: names in the table and paths in summary.json",
    )
    where: dict[str, str] = Field(default={}, description="show only these cases, by axis")
    digits: Count = 4
    paper: TomlTable = Field(
        default={},
        description="published numbers, nested by the labels of rows, columns and (if several) metrics",
    )

    def published(self, labels: Sequence[str]) -> float | None:
        """Return the published number of a cell, if there is one."""
        found: object = self.paper
        for label in labels:
            found = found.get(label) if isinstance(found, Mapping) else None
        return found if isinstance(found, int | float) else None

    def problems(self, path: str, axes: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
        """Yield the reasons why the layout at `path` does not fit a sweep with these axes and cases."""
        named = [*self.rows, *self.columns, *self.where]
        for key in ("rows", "columns", "where"):
            for name in getattr(self, key):
                if name not in axes:
                    yield Problem(f"{path}.{key}", f"no axis has this name{suggest(name, axes)}", name)
        for name, label in self.where.items():
            if label not in axes.get(name, [label]):
                message = f"the axis has no such case{suggest(label, axes[name])}"
                yield Problem(f"{path}.where.{name}", message, label)
        for name in axes:
            if named.count(name) > 1:
                yield Problem(path, "an axis may appear only once, in rows, columns or where", name)
            elif self.rows and name not in named:
                yield Problem(path, "every axis must appear in rows, columns or where", name)


def read_layouts(raw: Sequence[Mapping[str, object]], axes: Mapping[str, Sequence[str]]) -> list[TableLayout]:
    """Return the validated layouts of a sweep with these axes; raise a `ScenarioError` with all problems."""
    layouts, problems = [], list[Problem]()
    for index, table in enumerate(raw):
        try:
            layouts.append(TableLayout.model_validate(table))
        except ValidationError as error:
            problems += [
                Problem(join_path(("table", index, *e["loc"])), e["msg"], e["input"]) for e in error.errors()
            ]
        else:
            problems += layouts[-1].problems(f"table[{index}]", axes)
    if problems:
        raise ScenarioError(problems)
    return layouts


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
    moments: tuple[str, ...] = ()
    """the moments at which the accuracies were measured, in words"""

    @property
    def has_intervals(self) -> bool:
        """Whether a cell has several seeds."""
        return any(estimate.half_width is not None for estimate in self.cells.values())

    @property
    def note(self) -> str:
        """The axes of the columns, the moment of the accuracies, and the number of seeds."""
        nums = sorted({estimate.num for estimate in self.cells.values()})
        if not nums:
            return "no run is complete"
        seeds = " to ".join(dict.fromkeys(map(str, (nums[0], nums[-1]))))
        text = f"{seeds} seeds" if nums[-1] > 1 else "one seed"
        text = f"measured {' or '.join(self.moments)}; {text}" if self.moments else text
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


def make_table(sweep: Sweep, layout: TableLayout) -> Table:
    """Return the table of all runs so far with this layout."""
    axes = sweep.axes
    rows = layout.rows or [name for name in axes if name not in (*layout.columns, *layout.where)]
    values: dict[tuple[Labels, Labels], list[float]] = {}
    for run in sweep.runs:
        if any(run.labels[axis] != label for axis, label in layout.where.items()):
            continue
        row = tuple(run.labels[axis] for axis in rows) or ("all",)
        for name, path in layout.metrics.items():
            value = run.value(path)
            if value is not None:
                column = (*(run.labels[axis] for axis in layout.columns), name)
                values.setdefault((row, column), []).append(value)
    cells = {(row, _heading(layout, column)): mean_interval(found) for (row, column), found in values.items()}
    all_rows = list(product(*(axes[axis] for axis in rows))) if rows else [("all",)]
    all_columns = [
        _heading(layout, labels)
        for labels in product(*(axes[axis] for axis in layout.columns), layout.metrics)
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
        moments=_moments(sweep, layout),
    )


def _moments(sweep: Sweep, layout: TableLayout) -> tuple[str, ...]:
    found = (moment_of(path, moment) for path in layout.metrics.values() for moment in sweep.moments)
    return tuple(dict.fromkeys(moment for moment in found if moment is not None))


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


MAX_COLUMNS = 60
"""Maximum number of columns of results.csv, unless all are requested."""

HEADLINES = (
    *(
        "result.status",
        "result.error",
        "result.moment",
        "result.accuracy.honest.",
        "result.simulated_s",
        "result.messages.",
    ),
    *("result.rounds_done", "result.byzantine", "result.num_parameters", "result.telemetry.delay_s.mean"),
    *("result.wall.seconds", "result.digest", "result.warnings"),
)
"""Columns of results.csv by importance; a final dot stands for all columns that begin so."""


def write_csv(path: Path, runs: Sequence[SweepRun], metrics: Iterable[str] | None = None) -> tuple[int, int]:
    """Write one row per run: its labels, the keys of its scenario, and the keys of its summary.

    With `metrics`, write at most `MAX_COLUMNS` columns, with these metrics among them. Return the numbers of
    written and of omitted columns.
    """
    rows: list[JsonObject] = []
    for each in runs:
        parameters = flatten(each.run.scenario, "scenario.")
        parameters.pop("scenario.notes", None)
        values = {f"result.{key}": value for key, value in each.summary.items()}
        rows.append({"run": each.run.folder.name, **each.labels, **parameters, **values})
    columns = list(dict.fromkeys(key for row in rows for key in row))
    chosen = columns
    if metrics is not None:
        labels = dict.fromkeys(label for run in runs for label in run.labels)
        first = ["run", *labels, "scenario.seed", *(f"result.{path}" for path in metrics)]
        ranked = [key for key in _by_importance(first, rows, columns) if key in columns]
        chosen = sorted(ranked[:MAX_COLUMNS], key=columns.index)
    text = StringIO()
    writer = csv.DictWriter(text, chosen, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()} for row in rows
    )
    write_atomically(path, text.getvalue().encode())
    return len(chosen), len(columns) - len(chosen)


def _by_importance(first: Iterable[str], rows: Sequence[JsonObject], columns: Sequence[str]) -> list[str]:
    """Return the columns `first`, then the headlines, then the settings with several values."""
    headlines = [
        key
        for headline in HEADLINES
        for key in columns
        if key == headline or (headline.endswith(".") and key.startswith(headline))
    ]
    settings = [
        key
        for key in columns
        if key.startswith("scenario.") and len({repr(row[key]) for row in rows if key in row}) > 1
    ]
    return list(dict.fromkeys([*first, *headlines, *settings]))
