"""A commented scenario: what was chosen, and what else there is, in the words of the schema.

A line that begins with `# ` is a comment; one that begins with `#` alone is a key with its default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from textwrap import wrap
from typing import Any

from rdpfl_sim.components.registry import OneOf, Strict
from rdpfl_sim.scenario.component_list import describe_option
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.sections import CHOICES, AdversarySection

WIDTH = 88
HEAD = "rounds", "seed"
SECTIONS = (
    *("clients", "topology", "data", "partition", "model", "training", "method"),
    *("adversary", "network", "timing", "evaluation"),
)
"""What is shown, in this order."""


def commented_scenario(raw: Mapping[str, Any], title: str) -> str:
    """The text of a scenario that says what `raw` says; everything else stands there as a comment."""
    schema = _schema()
    lines = [*_comment(title), ""]
    for key in HEAD:
        lines += _option(key, schema[key], raw)
    for name in SECTIONS:
        lines += ["", *(_component if name in CHOICES else _section)(name, raw.get(name, {}))]
    keys = Scenario.keys()
    others = [key for key in keys if key not in ("name", "notes", *HEAD, *SECTIONS)]
    more = f"More sections: {', '.join(others)}. See rdpfl-sim list, and rdpfl-sim schema for every key."
    return "\n".join([*lines, "", *_comment(more), ""])


def toml(value: Any) -> str:
    """A value as TOML writes it, on one line.

    >>> toml({"name": "mlp", "hidden": [64], "bias": True})
    '{ name = "mlp", hidden = [64], bias = true }'
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


@cache
def _schema() -> dict[str, Any]:
    """The keys of a scenario; it takes a while to find them out."""
    properties: dict[str, Any] = Scenario.model_json_schema()["properties"]
    return properties


def _component(kind: str, chosen: Any) -> Iterator[str]:
    """A section that is one component."""
    choice = CHOICES[kind]
    name = _name(choice, chosen)
    for sentence in _about(choice, name):
        if not sentence.startswith("Options"):  # they follow
            yield from _comment(sentence)
    yield f"[{kind}]"
    yield f"name = {toml(name)}"
    yield from _options(choice.table(name), chosen if isinstance(chosen, Mapping) else {})


def _section(name: str, chosen: Mapping[str, Any]) -> Iterator[str]:
    """A section of several keys; there are no attackers unless they are chosen."""
    section: Any = AdversarySection if name == "adversary" else Scenario.model_fields[name].annotation
    yield from _comment(section.__doc__)
    yield f"[{name}]" if chosen or name != "adversary" else f"#[{name}]"
    yield from _options(section, chosen)


def _name(choice: OneOf, chosen: Any) -> str:
    name = chosen.get("name", choice.default) if isinstance(chosen, Mapping) else chosen or choice.default
    assert isinstance(name, str)
    return name


def _about(choice: OneOf, name: str) -> Iterator[str]:
    """What was chosen, its options, and what could have been."""
    table = choice.table(name)
    yield f"{name}: {table.__doc__}"
    _, *options = table.keys()  # the first is its name
    if options:
        yield f"Options: {', '.join(options)}."
    yield f"Others: {', '.join(other for other in choice.usable_names() if other != name)}."


def _options(section: type[Strict], chosen: Mapping[str, Any]) -> Iterator[str]:
    for key, facts in section.model_json_schema()["properties"].items():
        if key != "name":
            choice = next((mark for mark in _marks(section, key) if isinstance(mark, OneOf)), None)
            yield from _option(key, facts, chosen, choice)


def _marks(section: type[Strict], key: str) -> list[Any]:
    return next(f.metadata for name, f in section.model_fields.items() if key in (f.alias, name))


def _option(
    key: str, facts: Mapping[str, Any], chosen: Mapping[str, Any], choice: OneOf | None = None
) -> Iterator[str]:
    """A line for one key: as it was chosen, or its default as a comment."""
    value = chosen.get(key, facts.get("default"))
    if choice is not None and value is not None and not isinstance(value, list):
        note = " ".join(_about(choice, _name(choice, value)))
    else:
        note = "; ".join(describe_option(facts))
    if key in chosen:
        line = f"{key} = {toml(value)}"
    else:
        line = f"# {key} is not set" if value is None else f"#{key} = {toml(value)}"
    if len(line) + len(note) + 4 <= WIDTH:
        yield line + (f"  # {note}" if note else "")
    else:
        yield from _comment(note)
        yield line


def _comment(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")
