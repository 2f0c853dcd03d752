"""The list of components that `rdpfl-sim list` shows: names, summaries and options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import wrap

from pydantic.json_schema import JsonSchemaValue

from rdpfl_sim.aggregators import AGGREGATORS, PRE_AGGREGATORS
from rdpfl_sim.components.options import LARGE, describe_bound
from rdpfl_sim.components.schema import Component, OneOf, Strict
from rdpfl_sim.methods.directions import aggregation_components
from rdpfl_sim.plugin_checks import guard_and_try
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.sections import CHOICES, AdversarySection
from rdpfl_sim.toml import TomlTable, to_toml

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


MAX_LENGTH = 40
ALWAYS = ("lambda",)
"""Options that are always shown, because they determine the influence of neighbours."""


def describe_scenario(scenario: Scenario) -> dict[str, str]:
    """Return the entries of summary.json that name components, with options that differ from defaults."""
    return {
        "method": describe_method(scenario.method),
        "attack": "; ".join(map(describe_attack, scenario.adversary)) or "none",
        "topology": describe_component(scenario.topology),
    }


def describe_method(method: Component) -> str:
    """Return a method's name, its aggregator in brackets, and its options: `direct (mean), lambda 1`."""
    steps = [*aggregation_components(method).values()]
    if not steps:
        return ", ".join([method.name, *_changed_options(method)])
    aggregation = " + ".join(", ".join([step.name, *_changed_options(step)]) for step in steps)
    shown = ("aggregator ", "pre_aggregators ")
    options = [text for text in _changed_options(method) if not text.startswith(shown)]
    return ", ".join([f"{method.name} ({aggregation})", *options])


def describe_attack(section: AdversarySection) -> str:
    """Return the attack of a group of Byzantine clients, with the settings that differ from defaults."""
    attacks = " + ".join(describe_component(getattr(section, key)) for key in section.attacks)
    if not attacks:
        return "none"
    shown = ("schedule", "knowledge", "collude", "patience_s")
    return ", ".join([attacks, *(text for text in _changed_options(section) if text.split(" ")[0] in shown)])


def describe_component(component: Component) -> str:
    """Return a component's name and the options that differ from their defaults: `noise (sigma 3)`."""
    options = ", ".join(_changed_options(component))
    return f"{component.name} ({options})" if options else component.name


def _changed_options(table: Strict) -> Iterator[str]:
    fields = {key: info for key, info in type(table).model_fields.items() if key != "name"}
    names = {key: info.alias or key for key, info in fields.items()}
    given = {names[key]: getattr(table, key) for key, info in fields.items() if info.is_required()}
    if isinstance(table, Component):
        given["name"] = table.name
    default = type(table).model_validate(given)
    for key, info in fields.items():
        value = getattr(table, key)
        if value is not None and (
            info.is_required() or names[key] in ALWAYS or value != getattr(default, key)
        ):
            yield f"{names[key]} {_short_text(value)}"


def _short_text(value: object) -> str:
    match value:
        case Component():
            return describe_component(value)
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case str() if "/" in value:
            return Path(value).name
    text = str(value)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."


WIDTH = 88
TOP_KEYS = "rounds", "seed"
SECTIONS = (
    *("clients", "topology", "data", "partition", "model", "training", "method"),
    *("adversary", "network", "timing", "evaluation"),
)
"""The sections of the template, in order."""
NO_REASONS: Mapping[str, str] = {}


def commented_scenario(raw: TomlTable, title: str, reasons: Mapping[str, str] = NO_REASONS) -> str:
    """Return a TOML document with the values of `raw`, and all other keys as comments.

    Values with a reason, by path, have a comment with their default and this reason.
    """
    schema = _schema()
    lines = [*_comment(title), ""]
    for key in TOP_KEYS:
        lines += _key_lines(key, schema[key], raw)
    for name in SECTIONS:
        section = _component_section if name in CHOICES else _section
        lines += ["", *section(name, raw.get(name, {}), reasons)]
    keys = Scenario.keys()
    others = [key for key in keys if key not in ("name", "notes", *TOP_KEYS, *SECTIONS)]
    more = f"Other sections: {', '.join(others)}. For components and keys: rdpfl-sim list, rdpfl-sim schema."
    return "\n".join([*lines, "", *_comment(more), ""])


@cache
def _schema() -> dict[str, JsonSchemaValue]:
    """Return the JSON schema of the top-level keys; cached because building it is slow."""
    properties: dict[str, JsonSchemaValue] = Scenario.model_json_schema()["properties"]
    return properties


def _component_section(kind: str, chosen: object, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a section that is a component."""
    choice = CHOICES[kind]
    name = _chosen_name(choice, chosen)
    for sentence in _component_notes(choice, name):
        if not sentence.startswith("Options"):  # options are listed below
            yield from _comment(sentence)
    yield from _reason(choice.default, reasons.get(kind))
    yield f"[{kind}]"
    yield f"name = {to_toml(name)}"
    yield from _template_lines(
        choice.table(name), chosen if isinstance(chosen, Mapping) else {}, kind, reasons
    )


def _section(name: str, chosen: Mapping[str, object], reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of any other section; [adversary] is a comment unless attackers are configured."""
    section = AdversarySection if name == "adversary" else Scenario.model_fields[name].annotation
    assert isinstance(section, type)
    assert issubclass(section, Strict)
    yield from _comment(section.__doc__ or "")
    yield f"[{name}]" if chosen or name != "adversary" else f"#[{name}]"
    yield from _template_lines(section, chosen, name, reasons)


def _chosen_name(choice: OneOf, chosen: object) -> str:
    name = chosen.get("name", choice.default) if isinstance(chosen, Mapping) else chosen or choice.default
    assert isinstance(name, str)
    return name


def _component_notes(choice: OneOf, name: str) -> Iterator[str]:
    """Yield sentences about the chosen component, its options and the alternatives."""
    table = choice.table(name)
    yield f"{name}: {table.__doc__}"
    _, *options = table.keys()  # the first key is the name
    if options:
        yield f"Options: {', '.join(options)}."
    yield f"Alternatives: {', '.join(other for other in choice.usable_names() if other != name)}."


def _template_lines(
    section: type[Strict], chosen: Mapping[str, object], path: str, reasons: Mapping[str, str]
) -> Iterator[str]:
    for key, facts in section.model_json_schema()["properties"].items():
        if key != "name":
            choice = next((mark for mark in _metadata(section, key) if isinstance(mark, OneOf)), None)
            yield from _reason(facts.get("default"), reasons.get(f"{path}.{key}"))
            yield from _key_lines(key, facts, chosen, choice)


def _reason(default: object, reason: str | None) -> list[str]:
    return [] if reason is None else _comment(f"Default: {to_toml(default)}. {reason}")


def _metadata(section: type[Strict], key: str) -> list[object]:
    return next(f.metadata for name, f in section.model_fields.items() if key in (f.alias, name))


def _key_lines(
    key: str, facts: JsonSchemaValue, chosen: Mapping[str, object], choice: OneOf | None = None
) -> Iterator[str]:
    """Yield the line of one key, as chosen or with its default as a comment, and a note on it."""
    value = chosen.get(key, facts.get("default"))
    if choice is not None and value is not None:
        note = " ".join(_component_notes(choice, _chosen_name(choice, value)))
    else:
        note = "; ".join(describe_option(facts))
    if key in chosen:
        line = f"{key} = {to_toml(value)}"
    else:
        line = f"# {key} is not set" if value is None else f"#{key} = {to_toml(value)}"
    if len(line) + len(note) + 4 <= WIDTH:
        yield line + (f"  # {note}" if note else "")
    else:
        yield from _comment(note)
        yield line


def _comment(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
