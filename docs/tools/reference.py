"""Write the reference pages from the JSON schema, the signatures of components and the types of records."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic.fields import FieldInfo

from docs.tools.typography import typeset
from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.components.options import LARGE
from rdpfl_sim.components.table import Strict
from rdpfl_sim.records.record_types import OPEN, RECORDS, RecordHead
from rdpfl_sim.scenario.component_list import KINDS, describe_limits
from rdpfl_sim.scenario.scenario import Scenario

PAGES: Mapping[str, Sequence[str]] = {
    "methods": ["method"],
    "aggregators": ["aggregator", "pre_aggregator"],
    "attacks": ["attack", "timing_attack", "attack_schedule", "equivocation", "placement"],
    "network": ["topology", "latency", "geography", "loss", "bandwidth", "transport", "fault"],
    "learning": ["data", "partition", "model", "compute", "wait", "staleness", "executor"],
}
"""The pages of reference/ and the kinds of components on each."""

_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


def scenario() -> str:
    """Return every section of a scenario with its keys, as Markdown."""
    lines = ["## At the top", "", "Keys that stand before the first section, and components.", ""]
    lines += [*_rows(Scenario), ""]
    for path, brackets, section in _sections(Scenario, ""):
        heading = f"[[{path}]]" if brackets else f"[{path}]"
        lines += [f"## `{heading}` {{#{path}}}", "", typeset(inspect.getdoc(section) or ""), ""]
        lines += [*_rows(section), ""]
    return "\n".join(lines)


def records() -> str:
    """Return every record with its fields, as Markdown."""
    lines = ["| record | meaning | fields | in the digest |", "|---|---|---|---|"]
    for name, record in RECORDS.items():
        meaning = " ".join((inspect.getdoc(record) or "").split())
        common = RecordHead.__annotations__
        fields = ", ".join(f"`{field}`" for field in record.__annotations__ if field not in common)
        other = ", ..." if name in OPEN else ""
        digested = "no" if name.startswith("message_") else "yes"
        lines.append(f"| `{name}` | {typeset(meaning)} | {fields}{other} | {digested} |")
    return "\n".join([*lines, ""])


def components(page: str) -> str:
    """Return the components of a page with their options, as Markdown."""
    return "\n".join(line for kind in PAGES[page] for line in _kind(kind))


def _kind(kind: str) -> Iterator[str]:
    yield from (f"## {kind.replace('_', ' ').capitalize()} {{#{kind}}}", "")
    for name in KINDS[kind].registry:
        table = KINDS[kind].table(name)
        yield from (f"### `{name}` {{#{kind}-{name}}}", "")
        yield from (typeset(inspect.getdoc(table.target) or ""), "")
        source = inspect.getdoc(inspect.getmodule(table.target)) or ""
        if kind == "method" and "\n\n" in source:  # the module cites the paper
            cited = typeset(source.partition("\n\n")[2])
            yield from (re.sub(r"docs/(\w+\.md)", r"[\1](../\1)", cited), "")
        if len(table.model_fields) > 1:
            yield from (*_rows(table), "")


def _sections(model: type[Strict], prefix: str) -> Iterator[tuple[str, bool, type[Strict]]]:
    """Yield every section below a table: its path, a flag for lists of tables, and its keys."""
    for name, info in model.model_fields.items():
        candidates = (info.annotation, *get_args(info.annotation))
        section = next((c for c in candidates if isinstance(c, type) and issubclass(c, Strict)), None)
        if section is not None and _choice(info) is None:
            path = f"{prefix}{info.alias or name}"
            yield path, section is not info.annotation, section
            yield from _sections(section, f"{path}.")


def _rows(model: type[Strict]) -> list[str]:
    schema = model.model_json_schema()
    sections = {path for path, _, _ in _sections(model, "")}
    keys = {info.alias or name: info for name, info in model.model_fields.items()}
    rows = [
        _row(key, schema["properties"][key], info, key in schema.get("required", []))
        for key, info in keys.items()
        if key not in sections and "const" not in schema["properties"][key]
    ]
    columns = 4 if any(row[-1] for row in rows) else 3
    head = (("key", "value", "default", "meaning"), ("---",) * 4)
    return [f"| {' | '.join(row[:columns])} |" for row in (*head, *rows)]


def _row(key: str, facts: Mapping[str, Any], info: FieldInfo, required: bool) -> tuple[str, ...]:
    """Return a row of the table: key, allowed values, default and meaning."""
    default = facts.get("default")
    shown = "required" if required else "unset" if default is None else f"`{json.dumps(default)}`"
    description = facts.get("description", "")
    choice = _choice(info)
    if choice is None:
        value = _value(facts)
    else:
        page = next(page for page, kinds in PAGES.items() if choice.kind in kinds)
        value = f"[{choice.kind.replace('_', ' ')}]({page}.md#{choice.kind})"
        if facts.get("type") == "array":
            value = f"list, each: {value}"
        if description.startswith("one of: "):  # they are on that page
            description = ""
    return f"`{key}`", value, shown, typeset(description).replace("|", "&#124;")


def _choice(info: FieldInfo) -> OneOf | None:
    """Return the choice of a key that names a component or lists some."""
    nested = [mark for part in get_args(info.annotation) for mark in getattr(part, "__metadata__", ())]
    return next((mark for mark in (*info.metadata, *nested) if isinstance(mark, OneOf)), None)


def _value(facts: Mapping[str, Any]) -> str:
    """Return the type of a key and its bounds or choices, in words."""
    if "anyOf" in facts:
        return " or ".join(dict.fromkeys(_value(f) for f in facts["anyOf"] if f.get("type") != "null"))
    if "enum" in facts or "const" in facts:
        return ", ".join(f"`{json.dumps(value)}`" for value in facts.get("enum", [facts.get("const")]))
    if facts.get("type") == "array":
        return f"list, each: {_value(facts['items'])}" if "items" in facts else "list"
    if "\\.\\." in facts.get("pattern", ""):
        return 'text such as `"0..4, 7"`'
    bounds = ", ".join(f"`{bound}`" for bound in describe_limits(facts) if str(LARGE) not in bound)
    return f"{_TYPES.get(facts.get('type', ''), 'table')} {bounds}".strip()
