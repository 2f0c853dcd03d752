"""Write the reference pages from schema, signatures, record types and the parser of the command line."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

import polars as pl
from pydantic.fields import FieldInfo

import rdpfl_sim
from docs.tools.typography import typeset
from rdpfl_sim.cli.main import parse
from rdpfl_sim.components.options import LARGE
from rdpfl_sim.components.schema import OneOf, Strict
from rdpfl_sim.records.field import Field, fields_of
from rdpfl_sim.records.metrics import MetricsRow
from rdpfl_sim.records.record_types import OTHER_DIAGNOSTICS, RECORDS, FaultRecord, RecordHead
from rdpfl_sim.records.summary import SUMMARY_FIELDS
from rdpfl_sim.results.run import (
    FRAME_FIELDS,
    MESSAGE_EVENTS,
    ROUND_EVENTS,
    messages_frame,
    rounds_frame,
    schema_of,
)
from rdpfl_sim.scenario.component_list import KINDS, describe_limits
from rdpfl_sim.scenario.scenario import Scenario

PAGES: Mapping[str, Sequence[str]] = {
    "methods": ["method"],
    "aggregators": ["aggregator", "pre_aggregator"],
    "attacks": ["attack", "timing_attack", "attack_schedule", "equivocation", "placement"],
    "network": ["topology", "latency", "geography", "loss", "bandwidth", "transport", "fault"],
    "learning": [
        *("data", "partition", "model", "learning_rate_schedule"),
        *("compute", "wait", "staleness", "executor"),
    ],
}
"""The pages of reference/ and the kinds of components on each."""

_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


def scenario() -> str:
    """Return every section of a scenario with its keys, as Markdown."""
    lines = ["## At the top", "", "Keys that stand before the first section, and components.", ""]
    lines += [*_rows(Scenario), ""]
    for path, brackets, section in _sections(Scenario, ""):
        heading = f"[[{path}]]" if brackets else f"[{path}]"
        lines += [f"## `{heading}` {{#{path}}}", "", *_paragraphs(inspect.getdoc(section) or ""), ""]
        lines += [*_rows(section), ""]
    return "\n".join(lines)


def records() -> str:
    """Return every record with its fields, as Markdown."""
    lines = ["## Every record", "", *_field_rows(fields_of(RecordHead)), ""]
    common = fields_of(RecordHead)
    for name, record in RECORDS.items():
        lines += [f"## `{name}`", "", *_paragraphs(inspect.getdoc(record) or ""), ""]
        lines += ["Not part of the digest.", ""] if name.startswith("message_") else []
        own = {field: facts for field, facts in fields_of(record).items() if field not in common}
        lines += [*_field_rows(own), ""]
        if name == "estimate":
            lines += ["Fields that only some methods have:", "", *_field_rows(OTHER_DIAGNOSTICS), ""]
    return "\n".join(lines)


def columns() -> str:
    """Return every column of the tables of runs and sweeps, as Markdown."""
    metrics = fields_of(MetricsRow)
    parts = {
        "`metrics.csv` and `Run.metrics`": metrics,
        "`summary.json`, `Run.summary`": SUMMARY_FIELDS,
        "`Run.messages`": _frame_fields(messages_frame, MESSAGE_EVENTS),
        "`Run.rounds`": _frame_fields(rounds_frame, ROUND_EVENTS),
        "`Run.faults`": {k: v for k, v in fields_of(FaultRecord).items() if k != "event"},
    }
    lines = []
    for title, fields in parts.items():
        head = "key" if "json" in title else "column"
        lines += [f"## {title}", "", *_field_rows(fields, head), ""]
    return "\n".join(lines)


def _frame_fields(
    make: Callable[[pl.LazyFrame, Collection[int]], pl.LazyFrame], events: Sequence[str]
) -> Mapping[str, Field]:
    """Return the columns of a frame that is made from records, with the facts of their fields."""
    known: dict[str, Field] = {}
    for event in events:
        known = {**fields_of(RECORDS[event]), **known}
    names = make(pl.LazyFrame(schema=schema_of(events)), ()).collect_schema().names()
    return {name: FRAME_FIELDS.get(name) or known[name] for name in names}


def api() -> str:
    """Return the public names of the package with their signatures, as Markdown."""
    lines = []
    for name in (name for name in rdpfl_sim.__all__ if not name.startswith("_")):
        public = getattr(rdpfl_sim, name)
        lines += [f"## `{name}`", ""]
        if not inspect.isclass(public) or ("__init__" in vars(public) and not issubclass(public, Exception)):
            lines += [*_signature(name, public), ""]
        lines += [*_paragraphs(inspect.getdoc(public) or ""), ""]
        if inspect.isclass(public):
            lines += _members(public)
    return "\n".join(lines)


def _members(owner: type[Any]) -> Iterator[str]:
    """Yield a table of the public properties of a class, then its public methods."""
    members = {name: getattr(member, "__func__", member) for name, member in vars(owner).items()}
    public = {n: member for n, member in members.items() if not n.startswith("_") and inspect.getdoc(member)}
    values = {n: member for n, member in public.items() if isinstance(member, property | cached_property)}
    if values:
        yield from ("| property | meaning |", "|---|---|")
        for name, member in values.items():
            yield f"| `{name}` | {_cell(' '.join((inspect.getdoc(member) or '').split()))} |"
        yield ""
    for name, member in public.items():
        if inspect.isfunction(member):
            yield from (*_signature(f"{owner.__name__}.{name}", member), "")
            yield from (*_paragraphs(inspect.getdoc(member) or ""), "")


def _signature(name: str, function: Callable[..., object]) -> list[str]:
    """Return a call with all parameters as a block of code; long ones have one parameter per line."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    if inspect.isclass(function):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    text = name + re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=own)))
    if len(text) > 88:  # the width of a block on the site
        inner, _, after = text.removeprefix(f"{name}(").rpartition(")")
        parts = re.split(r", (?=\w+: |\*)", inner)
        text = "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){after}"])
    return ["```py", text, "```"]


def commands() -> str:
    """Return every command with its options, as Markdown."""
    lines = []
    for name, parser in _commands():
        lines += [f"## `{name}`", "", *_paragraphs(parser.description or ""), ""]
        actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
        rows = [(_argument(a), _cell((a.help or "") % _expansions(a))) for a in actions if a.dest != "help"]
        if rows:
            lines += ["| argument | meaning |", "|---|---|", *(f"| `{a}` | {b} |" for a, b in rows), ""]
    return "\n".join(lines)


def _commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    parser: argparse.ArgumentParser = parse(["schema"]).parser
    [choices] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    yield from choices.choices.items()


def _argument(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    return _cell(", ".join(action.option_strings) + f" {value}" if action.option_strings else value).strip()


def _expansions(action: argparse.Action) -> Mapping[str, object]:
    return {"default": action.default, "prog": "rdpfl-sim"}


def _field_rows(fields: Mapping[str, Field], head: str = "field") -> list[str]:
    rows = [f"| `{name}` | {_cell(each.unit)} | {_cell(each.meaning)} |" for name, each in fields.items()]
    return [f"| {head} | unit | meaning |", "|---|---|---|", *rows]


def _cell(text: str) -> str:
    return text.replace("|", "&#124;") if "`" not in text else text.replace("|", "\\|")


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring as typeset lines of at most 100 characters."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    lines = []
    for paragraph in paragraphs:
        linked = re.sub(r"docs/([\w/-]+/)?([\w-]+\.md)", r"[\2](../\1\2)", typeset(paragraph))
        glued = linked.replace(" + ", " +\N{NO-BREAK SPACE}")  # a line must not begin a list
        lines += [*textwrap.wrap(glued, 100, break_long_words=False, break_on_hyphens=False), ""]
    return lines[:-1]


def components(page: str) -> str:
    """Return the components of a page with their options, as Markdown."""
    return "\n".join(line for kind in PAGES[page] for line in _kind(kind))


def _kind(kind: str) -> Iterator[str]:
    yield from (f"## {kind.replace('_', ' ').capitalize()} {{#{kind}}}", "")
    for name in KINDS[kind].registry:
        table = KINDS[kind].table(name)
        yield from (f"### `{name}` {{#{kind}-{name}}}", "")
        yield from (*_paragraphs(inspect.getdoc(table.target) or ""), "")
        source = inspect.getdoc(inspect.getmodule(table.target)) or ""
        if kind == "method" and "\n\n" in source:  # the module cites the paper
            yield from (*_paragraphs(source.partition("\n\n")[2]), "")
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
        description = re.sub("^one of: .*?; ", "", description)  # they are on that page
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
