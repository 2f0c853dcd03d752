"""What came out of a sweep: one row a run, and tables as people print them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student_t  # type: ignore[import-untyped]

from rdpfl_sim.records.folder import write_atomically
from rdpfl_sim.sweeps.engine import folder_of
from rdpfl_sim.sweeps.plan import Layout, Run, Sweep

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation over seeds, and half the width of the 95 % interval (Student's t)."""

    mean: float
    deviation: float | None
    half_width: float | None
    num: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """From one value a seed."""
        if len(values) < 2:
            return cls(fmean(values), None, None, len(values))
        deviation = stdev(values)
        quantile = float(student_t.ppf((1 + LEVEL) / 2, len(values) - 1))
        return cls(fmean(values), deviation, quantile * deviation / sqrt(len(values)), len(values))


@dataclass(frozen=True)
class Table:
    """Estimates by row and column, with published numbers beside them."""

    title: str
    corner: str
    rows: list[str]
    columns: list[str]
    cells: dict[tuple[str, str], Estimate]
    paper: Mapping[str, Mapping[str, float]]
    digits: int

    def text(self, row: str, column: str, plus_minus: str = " ± ") -> str:
        """What stands in one cell: mean ± standard deviation over seeds (published number)."""
        estimate = self.cells.get((row, column))
        if estimate is None:
            return "-"
        text = f"{estimate.mean:.{self.digits}f}"
        if estimate.deviation is not None:
            text += f"{plus_minus}{estimate.deviation:.{self.digits}f}"
        published = self.paper.get(row, {}).get(column)
        return text if published is None else f"{text} ({published:.{self.digits}f})"


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys.

    >>> flat({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    found: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            found |= flat(item, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = item
    return found


def read(runs: Iterable[Run], output: Path) -> list[tuple[Run, dict[str, Any]]]:
    """The complete runs with their summaries, dotted."""
    found = []
    for run in runs:
        path = folder_of(run, output) / "summary.json"
        if path.exists():
            found.append((run, flat(json.loads(path.read_text()))))
    return found


def write_csv(path: Path, results: Sequence[tuple[Run, Mapping[str, Any]]]) -> None:
    """A tidy file: one row a run, with its labels, every parameter of its scenario, and every metric."""
    rows = []
    for run, summary in results:
        parameters = flat(run.scenario.to_dict(), "scenario.")
        metrics = {f"result.{key}": value for key, value in summary.items()}
        rows.append({"run": run.key, **run.labels, **parameters, **metrics})
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines: list[str] = []
    writer = csv.DictWriter(_Lines(lines), columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()} for row in rows
    )
    write_atomically(path, "".join(lines).encode())


def tables(sweep: Sweep, results: Sequence[tuple[Run, Mapping[str, Any]]]) -> list[Table]:
    """The tables that the sweep asks for, or one with all its cases."""
    layouts = sweep.table or [Layout(rows=axis.name) for axis in sweep.axes[:1]]
    return [_table(sweep, layout, results) for layout in layouts]


def _table(sweep: Sweep, layout: Layout, results: Sequence[tuple[Run, Mapping[str, Any]]]) -> Table:
    labels = {axis.name: [case.label for case in axis.cases] for axis in sweep.axes}
    others = [name for name in labels if name not in (layout.rows, layout.columns)]
    values: dict[tuple[str, str], list[float]] = {}
    for run, summary in results:
        value = summary.get(layout.metric)
        if isinstance(value, int | float) and isfinite(value):
            row = ", ".join([run.labels[layout.rows], *(run.labels[name] for name in others)])
            column = layout.metric if layout.columns is None else run.labels[layout.columns]
            values.setdefault((row, column), []).append(float(value))
    columns = [layout.metric] if layout.columns is None else labels[layout.columns]
    return Table(
        title=layout.title or sweep.name,
        corner=layout.rows,
        rows=list(dict.fromkeys(row for row, _ in values)),
        columns=[column for column in columns if any(key[1] == column for key in values)],
        cells={key: Estimate.of(found) for key, found in values.items()},
        paper=layout.paper,
        digits=layout.digits,
    )


def markdown(table: Table) -> str:
    """The table for a README: mean ± standard deviation, and the published number in brackets."""
    return _grid(table, " ± ", "| {} |", " | ", "|---" * (len(table.columns) + 1) + "|")


def latex(table: Table) -> str:
    """The table for a paper, in booktabs style."""
    body = _grid(table, " $\\pm$ ", "{} \\\\", " & ", "\\midrule")
    columns = "l" + "c" * len(table.columns)
    body = body.replace("_", "\\_").replace("%", "\\%")
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}"


def _grid(table: Table, plus_minus: str, line: str, separator: str, rule: str) -> str:
    head = line.format(separator.join([table.corner, *table.columns]))
    rows = [
        line.format(separator.join([row, *(table.text(row, column, plus_minus) for column in table.columns)]))
        for row in table.rows
    ]
    return "\n".join([head, rule, *rows])


class _Lines:
    """A file that only collects what is written."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def write(self, text: str) -> None:
        self.lines.append(text)
