"""Short descriptions of a scenario's method, attack and topology, for summaries, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rdpfl_sim.components.option_table import Component
from rdpfl_sim.components.table import Strict
from rdpfl_sim.methods.aggregation import aggregation_components
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.sections import AdversarySection

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
    components = [section.attack, section.timing, section.equivocation]
    attacks = " + ".join(describe_component(part) for part in components if part.name != "none")
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
