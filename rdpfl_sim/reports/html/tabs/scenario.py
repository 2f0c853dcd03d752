"""Scenario: the resolved scenario as TOML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import tomli_w

from rdpfl_sim.reports.html.page import Card
from rdpfl_sim.reports.html.tab import RunRecords, run_tab


@dataclass(frozen=True)
class TomlListing:
    """The lines of a TOML file, in blocks that are not split across columns. The template highlights keys."""

    blocks: Sequence[Sequence[str]]
    template: ClassVar[str] = "toml.html"


@run_tab("Scenario", position=80)
def scenario_tab(records: RunRecords) -> Sequence[Card]:
    """Show the resolved scenario."""
    return [scenario_card(records.run.scenario)]


def scenario_card(scenario: Mapping[str, object]) -> Card:
    """Show a scenario as TOML."""
    lines = _join_arrays(tomli_w.dumps(dict(scenario)).splitlines())
    groups = groupby(lines, key=bool)  # blank lines separate blocks
    blocks = [[*group] for is_block, group in groups if is_block]
    text = "The resolved scenario: every option with the value used in this run."
    return Card("Scenario", text, content=TomlListing(blocks), wide=True)


def _join_arrays(lines: Iterable[str]) -> list[str]:
    """Write each array on one line; tomli_w writes one line per element.

    >>> _join_arrays(["a = 1", "b = [", "    [", "        1,", "        2,", "    ],", "]", "c = []"])
    ['a = 1', 'b = [[1, 2]]', 'c = []']
    """
    joined: list[str] = []
    depth = 0
    for line in lines:
        text = line.strip() + (" " if depth and line.endswith(",") else "")
        if text.startswith("]"):
            joined[-1] = joined[-1].removesuffix(", ") + text
            depth -= 1
        elif depth:
            joined[-1] += text
        else:
            joined.append(text)
        depth += line.endswith("[")
    return joined
