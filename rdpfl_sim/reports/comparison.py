"""Comparison tables of groups of runs, for a terminal or as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rich.box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.text import count_range, escape_control, seed_list

if TYPE_CHECKING:
    from rdpfl_sim.intervals import MeanInterval
    from rdpfl_sim.results.compare import Cell, Comparison, SweepComparison


@dataclass(frozen=True)
class TextTable:
    """A table of text. The first `num_labels` columns are labels; sections start at the rows `sections`."""

    head: list[str]
    rows: list[list[str]]
    num_labels: int
    sections: tuple[int, ...] = ()

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---" if column < self.num_labels else "---:" for column in range(len(self.head))]
        rows = [[text.replace("|", "\\|") for text in row] for row in self.rows]
        return "\n".join("| " + " | ".join(row) + " |" for row in (self.head, rule, *rows))

    def rich_table(self) -> Table:
        """Return the table for a terminal."""
        table = Table(box=rich.box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column, heading in enumerate(self.head):
            is_label = column < self.num_labels
            table.add_column(heading, justify="left" if is_label else "right", overflow="fold")
        for number, row in enumerate(self.rows):
            if number in self.sections:
                table.add_section()
            table.add_row(*(Text(escape_control(text)) for text in row))
        return table


@dataclass(frozen=True)
class ComparisonPage:
    """A comparison as text: the groups, or the title of a sweep, then tables with titles, then notes."""

    head: list[str]
    tables: list[tuple[str, TextTable]]
    notes: list[str]

    def terminal(self) -> RenderableType:
        """Return the page for a terminal."""
        style = "bold" if len(self.head) == 1 else ""
        parts: list[RenderableType] = [Text(escape_control(line), style=style) for line in self.head]
        for title, table in self.tables:
            parts += ["", Text(escape_control(title), style="bold")] if title else [""]
            parts.append(table.rich_table())
        return Group(*parts, "", *(Text(escape_control(line)) for line in self.notes))

    def markdown(self) -> str:
        """Return the page as Markdown."""
        head = self.head if len(self.head) == 1 else [f"- {line}" for line in self.head]
        parts = ["\n".join(head)]
        for title, table in self.tables:
            parts += [f"### {title}"] if title else []
            parts.append(table.markdown())
        parts += ["\n".join(f"- {line}" for line in self.notes)]
        return "\n\n".join(part for part in parts if part)


def comparison_page(found: Comparison) -> ComparisonPage:
    """Return groups, differing settings, metrics and notes."""
    tables = [("", table) for table in (settings_table(found), metrics_table(found)) if table.rows]
    return ComparisonPage(group_lines(found), tables, [*_pairs_notes(_numbers_of_pairs(found)), *found.notes])


def sweep_comparison_page(found: SweepComparison) -> ComparisonPage:
    """Return a title, one table of metrics per combination of the other axes, and the notes, each once."""
    within = f" within {', '.join(found.other_axes)}" if found.other_axes else ""
    head = f"{found.name}: baseline {found.axis} = {found.baseline}; paired by seed{within}"
    tables = [(title, metrics_table(comparison)) for title, comparison in found.blocks.items()]
    nums = {num for comparison in found.blocks.values() for num in _numbers_of_pairs(comparison)}
    return ComparisonPage([head], tables, list(dict.fromkeys([*_pairs_notes(nums), *found.notes])))


def group_lines(comparison: Comparison) -> list[str]:
    """Return one line per group: label, name, seeds, and the folder if it has a single run."""
    lines = []
    for number, group in enumerate(comparison.groups):
        runs = list(group.runs.values())
        names = ", ".join(dict.fromkeys(str(run.scenario.get("name", "scenario")) for run in runs))
        folder = f" in {runs[0].folder}" if len(runs) == 1 else ""
        baseline = "" if number else " (baseline)"
        lines.append(
            escape_control(f"{group.label}  {names}, {seed_list(sorted(group.runs))}{folder}{baseline}")
        )
    return lines


def settings_table(comparison: Comparison) -> TextTable:
    """Return the settings that differ: one column per group for two groups, otherwise one row per group."""
    labels = [group.label for group in comparison.groups]
    if len(labels) == 2:
        rows = [[path, *map(_value, values)] for path, values in comparison.settings.items()]
        return TextTable(["setting", *labels], rows, num_labels=3)
    rows = []
    for number, label in enumerate(labels):
        own = {path: values[number] for path, values in comparison.settings.items()}
        settings = [f"{path} = {_value(value)}" for path, value in own.items() if value is not None]
        rows.append([label, ", ".join(settings)])
    return TextTable(["", "settings that differ"], rows if comparison.settings else [], num_labels=2)


def metrics_table(comparison: Comparison) -> TextTable:
    """Return means over seeds and differences from the baseline with 95 % intervals."""
    baseline, *others = (group.label for group in comparison.groups)
    rows = []
    for path, cells in comparison.metrics.items():
        digits = _digits(cells)
        mean, compared = _mean(cells[0], digits), [_compared(cell, digits) for cell in cells[1:]]
        if len(others) == 1:
            rows.append([path, mean, *compared[0]])
        else:
            rows.append([path, baseline, mean, "", ""])
            rows += [["", label, *texts] for label, texts in zip(others, compared, strict=True)]
    if len(others) == 1:
        head = ["metric", baseline, others[0], f"{others[0]} - {baseline}", "pairs"]
        table = TextTable(head, rows, num_labels=1)
    else:
        head = ["metric", "", "mean", f"minus {baseline}", "pairs"]
        sections = tuple(range(0, len(rows), len(comparison.groups)))
        table = TextTable(head, rows, num_labels=2, sections=sections)
    return table if len(_numbers_of_pairs(comparison)) != 1 else _without_last_column(table)


def _pairs_notes(nums: set[int]) -> list[str]:
    if not nums:
        return []
    if nums == {1}:
        return ["One pair of runs: no interval. Only more seeds can show whether a difference is real."]
    pairs = count_range(min(nums), max(nums))
    return [f"Means over seeds; ± is the 95 % interval (Student's t) over {pairs} pairs with equal seeds."]


def _numbers_of_pairs(comparison: Comparison) -> set[int]:
    """Return the numbers of pairs that occur in any metric of any group."""
    cells = [cell for row in comparison.metrics.values() for cell in row[1:]]
    return {0 if cell.difference is None else cell.difference.num for cell in cells}


def _without_last_column(table: TextTable) -> TextTable:
    rows = [row[:-1] for row in table.rows]
    return TextTable(table.head[:-1], rows, table.num_labels, table.sections)


def _digits(cells: Sequence[Cell]) -> int:
    """Return a suitable number of decimals for the means and differences of one metric."""
    means = [abs(estimate.mean) for cell in cells for estimate in (cell.mean, cell.difference) if estimate]
    if all(float(mean).is_integer() for mean in means):
        return 0
    return 4 if max(means) < 10 else 2 if max(means) < 1000 else 0


def _compared(cell: Cell, digits: int) -> list[str]:
    """Return mean, difference from the baseline and number of pairs."""
    if cell.difference is None:
        return [_mean(cell, digits), "-", "0"]
    return [_mean(cell, digits), _difference(cell.difference, digits), str(cell.difference.num)]


def _mean(cell: Cell, digits: int) -> str:
    return "-" if cell.mean is None else f"{cell.mean.mean:,.{digits}f}"


def _difference(estimate: MeanInterval, digits: int) -> str:
    interval = "" if estimate.half_width is None else f" ± {estimate.half_width:,.{digits}f}"
    return f"{estimate.mean:+,.{digits}f}{interval}"


def _value(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, default=str)
