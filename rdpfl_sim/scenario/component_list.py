"""The list of components that `rdpfl-sim list` shows: names, summaries and options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic.json_schema import JsonSchemaValue
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.options import LARGE, describe_bound
from rdpfl_sim.contracts.plugin_check import guard_and_try
from rdpfl_sim.maths.aggregators import AGGREGATORS, PRE_AGGREGATORS
from rdpfl_sim.scenario.sections import CHOICES

HANGING_INDENT = 2

KINDS: Mapping[str, OneOf] = {
    **CHOICES,
    "aggregator": OneOf(AGGREGATORS),
    "pre_aggregator": OneOf(PRE_AGGREGATORS),
}
"""Every kind of component."""

_BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}


@dataclass(frozen=True)
class Entry:
    """One component: its name, the first line of its documentation, and one line per option."""

    name: str
    summary: str
    options: tuple[str, ...]


def list_components() -> dict[str, list[Entry]]:
    """Return every usable component, by kind."""
    return {
        kind: [
            Entry(name, choice.table(name).__doc__ or "", _option_lines(choice.table(name)))
            for name in choice.usable_names()
        ]
        for kind, choice in KINDS.items()
    }


def broken_plugins(kinds: Iterable[str]) -> list[str]:
    """Return one error message per unusable plug-in of these kinds."""
    return [sentence for kind in kinds for sentence in _plugin_problems(KINDS[kind])]


def _plugin_problems(choice: OneOf) -> list[str]:
    """Return one error message per broken plug-in; plug-ins without required options are also tested."""
    problems = choice.broken()
    for name in choice.usable_names():
        table = choice.table(name)
        required = [key for key, info in table.model_fields.items() if info.is_required()]
        if table.plugin is not None and required == ["name"]:
            problem = guard_and_try(choice.validate(name))
            problems += [] if problem is None else [problem]
    return problems


def markdown_table(kinds: Mapping[str, Sequence[Entry]]) -> str:
    """Return a Markdown table with one row per kind."""
    rows = [
        f"| {kind} | {', '.join(f'`{entry.name}`' for entry in entries)} |" for kind, entries in kinds.items()
    ]
    return "\n".join(["| kind | built in |", "|---|---|", *rows])


def overview(kinds: Mapping[str, Sequence[Entry]]) -> RenderableType:
    """Return a terminal table with the names of all components, one row per kind."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for kind, entries in kinds.items():
        table.add_row(Text(kind, style="bold"), Text(", ".join(entry.name for entry in entries)))
    return table


def details(kinds: Mapping[str, Sequence[Entry]]) -> RenderableType:
    """Return terminal text with the summary and the options of every component."""
    lines: list[RenderableType] = []
    for kind, entries in kinds.items():
        lines.append(Text(kind, style="bold"))
        for entry in entries:
            lines.append(HangingIndent(Text.assemble((entry.name, "cyan"), f": {entry.summary}"), 2))
            lines += [HangingIndent(Text(option, style="dim"), 6) for option in entry.options]
    return Group(*lines)


@dataclass(frozen=True)
class HangingIndent:
    """A paragraph whose first line is indented by `indent`; further lines are indented a little more."""

    text: Text
    indent: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        deeper = self.indent + HANGING_INDENT
        lines = self.text.wrap(console, max(options.max_width - deeper, 1))
        for index, line in enumerate(lines):
            line.rstrip()
            yield Padding(line, (0, 0, 0, self.indent if index == 0 else deeper), expand=False)


def _option_lines(table: type[Component]) -> tuple[str, ...]:
    schema = table.model_json_schema()
    required = schema.get("required", [])
    return tuple(
        _option_line(key, facts, key in required)
        for key, facts in schema["properties"].items()
        if key != "name"
    )


def _option_line(key: str, facts: JsonSchemaValue, required: bool) -> str:
    value = facts.get("default")
    default = "(required)" if required else "(unset)" if value is None else json.dumps(value)
    notes = describe_option(facts)
    return f"{key} = {default}" + (f"  # {'; '.join(notes)}" if notes else "")


def describe_option(facts: JsonSchemaValue) -> list[str]:
    """Return the limits and the description of an option, from its JSON schema."""
    return [*describe_limits(facts), *([facts["description"]] if "description" in facts else [])]


def describe_limits(facts: JsonSchemaValue) -> list[str]:
    """Return the bounds or choices in a JSON schema as text, without bounds that only keep numbers finite."""
    if "anyOf" in facts:
        return [text for choice in facts["anyOf"] for text in describe_limits(choice)]
    if "enum" in facts or "const" in facts:
        return [" | ".join(json.dumps(value) for value in facts.get("enum", [facts.get("const")]))]
    bounds = {sign: facts[word] for word, sign in _BOUNDS.items() if word in facts}
    return [describe_bound(sign, bound) for sign, bound in bounds.items() if bound < min(LARGE, 2**63)]
