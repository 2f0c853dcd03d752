"""The rows that benchmarks return, and the table that they form."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

_BOUNDS = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Row:
    """One measurement. `value` is compared with the target: usually the ratio of ours and the reference."""

    task: str
    ours: str
    reference: str = ""
    value: float | None = None
    must: str = ""
    """The target, such as ">= 8"; empty if there is none."""

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None if there is no target, or nothing to compare with."""
        if not self.must or self.value is None:
            return None
        comparison, bound = self.must.split()
        return bool(_BOUNDS[comparison](self.value, float(bound)))

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts of the row's cells."""
        value = (
            "" if self.value is None else f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.2f}"
        )
        verdict = {True: "yes", False: "NO", None: ""}[self.reached]
        return self.task, self.ours, self.reference, value, self.must, verdict


HEADINGS = ("work", "ours", "reference", "ratio or value", "target", "reached")


def show(rows: Iterable[Row], title: str = "") -> None:
    """Print the rows as one table."""
    table = Table(*HEADINGS, title=title)
    for row in rows:
        table.add_row(*row.cells)
    Console(width=170).print(table)


def markdown(found: Mapping[str, Iterable[Row]]) -> str:
    """Return the rows of all benchmarks as Markdown, one table per benchmark."""
    lines: list[str] = []
    for name, rows in found.items():
        lines += [
            f"### {name.replace('_', ' ').capitalize()} {{#{name}}}",
            "",
            f"`python benchmarks/{name}.py`",
            "",
        ]
        cells = [HEADINGS, ("---",) * len(HEADINGS), *map(_marked, rows)]
        lines += [*(f"| {' | '.join(row)} |" for row in cells), ""]
    return "\n".join(lines[:-1])


def _marked(row: Row) -> tuple[str, ...]:
    """Return the cells of a row; one that misses its target is in bold."""
    return tuple(f"**{cell}**" if cell else "" for cell in row.cells) if row.reached is False else row.cells
