"""What is built in, read off the components' signatures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rdpfl_sim.components.options import LARGE, SMALL
from rdpfl_sim.components.registry import Component, OneOf
from rdpfl_sim.contracts.kinds import hold
from rdpfl_sim.maths.aggregators import AGGREGATORS
from rdpfl_sim.maths.aggregators.preaggregators import PRE_AGGREGATORS
from rdpfl_sim.scenario.sections import CHOICES

HANGING = 2


@dataclass(frozen=True)
class Entry:
    """One component: its name, the first line of its documentation, and its options in words."""

    name: str
    summary: str
    options: tuple[str, ...]


KINDS: Mapping[str, OneOf] = {
    **CHOICES,
    "aggregator": OneOf("aggregator", AGGREGATORS),
    "pre_aggregator": OneOf("pre_aggregator", PRE_AGGREGATORS),
}
"""Every kind of component."""


def list_components() -> dict[str, list[Entry]]:
    """Every component that can be used, by kind."""
    return {
        kind: [
            Entry(name, choice.table(name).__doc__ or "", _options(choice.table(name)))
            for name in choice.usable_names()
        ]
        for kind, choice in KINDS.items()
    }


def broken_plugins(kinds: Iterable[str]) -> list[str]:
    """A sentence about every plug-in of these kinds that cannot be used."""
    return [sentence for kind in kinds for sentence in flaws_of(KINDS[kind])]


def flaws_of(choice: OneOf) -> list[str]:
    """A sentence about every plug-in of a kind that cannot be used; with default options, if it has them."""
    flaws = choice.broken()
    for name in choice.usable_names():
        table = choice.table(name)
        required = [key for key, info in table.model_fields.items() if info.is_required()]
        if table.plugin is not None and required == ["name"]:
            flaw = hold(choice.validate(name))
            flaws += [] if flaw is None else [flaw]
    return flaws


def markdown_table(kinds: Mapping[str, Sequence[Entry]]) -> str:
    """A Markdown table with one row per kind."""
    rows = [
        f"| {kind} | {', '.join(f'`{entry.name}`' for entry in entries)} |" for kind, entries in kinds.items()
    ]
    return "\n".join(["| kind | built in |", "|---|---|", *rows])


def overview(kinds: Mapping[str, Sequence[Entry]]) -> RenderableType:
    """The names of all components, by kind, for a terminal."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for kind, entries in kinds.items():
        table.add_row(Text(kind, style="bold"), Text(", ".join(entry.name for entry in entries)))
    return table


def listing(kinds: Mapping[str, Sequence[Entry]]) -> RenderableType:
    """Everything about every component, for a terminal."""
    lines: list[RenderableType] = []
    for kind, entries in kinds.items():
        lines.append(Text(kind, style="bold"))
        for entry in entries:
            lines.append(Hanging(Text.assemble((entry.name, "cyan"), f": {entry.summary}"), 2))
            lines += [Hanging(Text(option, style="dim"), 6) for option in entry.options]
    return Group(*lines)


@dataclass(frozen=True)
class Hanging:
    """A paragraph whose first line begins at `indent`, and the others further to the right."""

    text: Text
    indent: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        further = self.indent + HANGING
        lines = self.text.wrap(console, max(options.max_width - further, 1))
        for place, line in enumerate(lines):
            line.rstrip()
            yield Padding(line, (0, 0, 0, self.indent if place == 0 else further), expand=False)


def _options(table: type[Component]) -> tuple[str, ...]:
    schema = table.model_json_schema()
    required = schema.get("required", [])
    return tuple(
        _option(key, facts, key in required) for key, facts in schema["properties"].items() if key != "name"
    )


def _option(key: str, facts: Mapping[str, Any], required: bool) -> str:
    value = facts.get("default")
    default = "(required)" if required else "(unset)" if value is None else json.dumps(value)
    notes = describe_option(facts)
    return f"{key} = {default}" + (f"  # {'; '.join(notes)}" if notes else "")


def describe_option(facts: Mapping[str, Any]) -> list[str]:
    """Return the limits of an option and its description, from its JSON schema."""
    return [*describe_limits(facts), *([facts["description"]] if "description" in facts else [])]


def describe_limits(facts: Mapping[str, Any]) -> list[str]:
    """The bounds or choices in a piece of JSON schema, in words; not those that only keep numbers finite."""
    if "anyOf" in facts:
        return [text for choice in facts["anyOf"] for text in describe_limits(choice)]
    if "enum" in facts or "const" in facts:
        return [" | ".join(json.dumps(value) for value in facts.get("enum", [facts.get("const")]))]
    bounds = {sign: facts[word] for word, sign in _BOUNDS.items() if word in facts}
    if bounds.get(">=") == SMALL:
        bounds = {">": 0, **bounds}
        del bounds[">="]
    return [f"{sign} {bound:g}" for sign, bound in bounds.items() if bound < min(LARGE, 2**63)]


_BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
