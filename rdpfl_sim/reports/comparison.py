"""Runs side by side, for a terminal or as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import rich.box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.text import escape_control

MAX_SEEDS = 8  # more are counted, not listed


@dataclass(frozen=True)
class Sheet:
    """A table in words; the columns from `num_words` on are numbers, a new part begins at each of `parts`."""

    head: list[str]
    rows: list[list[str]]
    num_words: int
    parts: tuple[int, ...] = ()

    def markdown(self) -> str:
        """As Markdown."""
        rule = ["---" if place < self.num_words else "---:" for place in range(len(self.head))]
        rows = [[text.replace("|", "\\|") for text in row] for row in self.rows]
        lines = ["| " + " | ".join(row) + " |" for row in (self.head, rule, *rows)]
        return "\n".join(lines)

    def shown(self) -> Table:
        """For a terminal."""
        table = Table(box=rich.box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for place, heading in enumerate(self.head):
            words = place < self.num_words
            table.add_column(heading, justify="left" if words else "right", overflow="fold", no_wrap=False)
        for place, row in enumerate(self.rows):
            if place in self.parts:
                table.add_section()
            table.add_row(*(Text(escape_control(text)) for text in row))
        return table


def comparison_table(comparison: Any) -> RenderableType:
    """Who is compared, what differs in their settings, and in their results."""
    parts: list[RenderableType] = [Text(line) for line in group_lines(comparison)]
    for sheet in (settings_sheet(comparison), metrics_sheet(comparison)):
        parts += ["", sheet.shown()] if sheet.rows else []
    parts += ["", *(Text(escape_control(line)) for line in notes(comparison))]
    return Group(*parts)


def comparison_markdown(comparison: Any) -> str:
    """The same as Markdown."""
    sheets = [sheet for sheet in (settings_sheet(comparison), metrics_sheet(comparison)) if sheet.rows]
    lists = [[f"- {line}" for line in lines] for lines in (group_lines(comparison), notes(comparison))]
    parts = ["\n".join(lists[0]), *(sheet.markdown() for sheet in sheets), "\n".join(lists[1])]
    return "\n\n".join(part for part in parts if part)


def group_lines(comparison: Any) -> list[str]:
    """One line a group: its letter, its name, its seeds, and its folder if it is one run."""
    lines = []
    for place, group in enumerate(comparison.groups):
        runs = list(group.runs.values())
        names = ", ".join(dict.fromkeys(str(run.scenario.get("name", "scenario")) for run in runs))
        where = f" in {runs[0].folder}" if len(runs) == 1 else ""
        line = f"{group.label}  {names}, {_seeds(sorted(group.runs))}{where}{'' if place else ' (baseline)'}"
        lines.append(escape_control(line))
    return lines


def settings_sheet(comparison: Any) -> Sheet:
    """What differs: side by side for two groups, else a line a group."""
    labels = [group.label for group in comparison.groups]
    if len(labels) == 2:
        rows = [[path, *map(_value, row)] for path, row in comparison.settings.items()]
        return Sheet(["setting", *labels], rows, num_words=3)
    rows = []
    for place, label in enumerate(labels):
        told = [(path, row[place]) for path, row in comparison.settings.items() if row[place] is not None]
        rows.append([label, ", ".join(f"{path} = {_value(value)}" for path, value in told)])
    return Sheet(["", "settings that differ"], rows if comparison.settings else [], num_words=2)


def metrics_sheet(comparison: Any) -> Sheet:
    """Means over seeds and paired differences with 95 % intervals."""
    baseline, other, *more = (group.label for group in comparison.groups)
    if not more:
        rows = [[path, *_texts(cells)] for path, cells in comparison.metrics.items()]
        head = ["metric", baseline, other, f"{other} - {baseline}", "pairs"]
        return _without_equal_pairs(Sheet(head, rows, num_words=1), comparison)
    rows = []
    for path, cells in comparison.metrics.items():
        first, *texts = _texts(cells)
        rows.append([path, baseline, first, "", ""])
        lines = zip(comparison.groups[1:], _triples(texts), strict=True)
        rows += [["", group.label, *line] for group, line in lines]
    parts = tuple(range(0, len(rows), len(comparison.groups)))
    head = ["metric", "", "mean", f"less {baseline}", "pairs"]
    return _without_equal_pairs(Sheet(head, rows, num_words=2, parts=parts), comparison)


def notes(comparison: Any) -> list[str]:
    """How to read the numbers, and what to know before believing them."""
    counts = sorted(_pairs(comparison))
    told = []
    if counts == [1]:
        told.append(
            "One pair of runs each: no interval. Run more seeds to know whether a difference is real."
        )
    elif counts:
        some = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        told.append(
            f"Means over seeds; ± is the 95 % interval (Student's t) over {some} pairs of equal seed."
        )
    return told + list(comparison.notes)


def _pairs(comparison: Any) -> set[int]:
    """How many pairs there are, over all metrics and groups."""
    cells = [cell for row in comparison.metrics.values() for cell in row[1:]]
    return {0 if cell.difference is None else cell.difference.num for cell in cells}


def _without_equal_pairs(sheet: Sheet, comparison: Any) -> Sheet:
    """Without the last column, if it says the same everywhere: 80 columns are few."""
    if len(_pairs(comparison)) != 1:
        return sheet
    return Sheet(sheet.head[:-1], [row[:-1] for row in sheet.rows], sheet.num_words, sheet.parts)


def _texts(cells: Sequence[Any]) -> list[str]:
    """The baseline's mean, then mean, difference and number of pairs of every other group."""
    estimates = [
        estimate for cell in cells for estimate in (cell.mean, cell.difference) if estimate is not None
    ]
    whole = all(float(estimate.mean).is_integer() for estimate in estimates)
    digits = 0 if whole else decimals(max(abs(estimate.mean) for estimate in estimates))
    baseline, *others = cells
    return [_mean(baseline, digits), *(text for cell in others for text in _other(cell, digits))]


def _other(cell: Any, digits: int) -> list[str]:
    if cell.difference is None:
        return [_mean(cell, digits), "-", "0"]
    return [_mean(cell, digits), difference(cell.difference, digits), str(cell.difference.num)]


def _triples(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[place : place + 3] for place in range(0, len(texts), 3))


def _mean(cell: Any, digits: int) -> str:
    return "-" if cell.mean is None else f"{cell.mean.mean:,.{digits}f}"


def difference(estimate: Any, digits: int) -> str:
    """A difference with its sign, and the interval if there is one.

    >>> from rdpfl_sim.intervals import MeanInterval
    >>> difference(MeanInterval(0.0123, 0.01, 0.0045, 5), 4)
    '+0.0123 ± 0.0045'
    """
    interval = "" if estimate.half_width is None else f" ± {estimate.half_width:,.{digits}f}"
    return f"{estimate.mean:+,.{digits}f}{interval}"


def decimals(size: float) -> int:
    """So many decimals suit a number of this size.

    >>> [decimals(size) for size in (0.8, 103.1, 1200.5)]
    [4, 2, 0]
    """
    return 4 if size < 10 else 2 if size < 1000 else 0


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > MAX_SEEDS:
        return f"{len(seeds)} seeds from {seeds[0]} to {seeds[-1]}"
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
