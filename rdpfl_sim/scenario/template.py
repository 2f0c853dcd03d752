"""The scenario template written by `rdpfl-sim new`: chosen values, and every other key as a comment.

A line that starts with `# ` is a comment. A line that starts with `#` without a space is a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from textwrap import wrap

from pydantic.json_schema import JsonSchemaValue

from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.components.table import Strict
from rdpfl_sim.scenario.component_list import describe_option
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.sections import CHOICES, AdversarySection
from rdpfl_sim.scenario.toml_file import TomlTable, to_toml

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
    yield from _option_lines(choice.table(name), chosen if isinstance(chosen, Mapping) else {}, kind, reasons)


def _section(name: str, chosen: Mapping[str, object], reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of any other section; [adversary] is a comment unless attackers are configured."""
    section = AdversarySection if name == "adversary" else Scenario.model_fields[name].annotation
    assert isinstance(section, type)
    assert issubclass(section, Strict)
    yield from _comment(section.__doc__ or "")
    yield f"[{name}]" if chosen or name != "adversary" else f"#[{name}]"
    yield from _option_lines(section, chosen, name, reasons)


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


def _option_lines(
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
