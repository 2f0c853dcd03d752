"""Whether a component has an effect: the run has other records with another component in its place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.scenario.component_list import KINDS
from tests.fuzz.coverage import Chosen, chosen_in
from tests.fuzz.execution import FailedScenarioError, loaded, records_of
from tests.fuzz.scenarios import RandomScenario

SAME_RECORDS = ("executor",)
"""Kinds of components that must not change the records, except for rounding."""


def has_effect(chosen: Chosen, drawn: RandomScenario) -> bool:
    """Return whether a run has other records without a component.

    A fault is removed. Any other component is replaced by the default of its kind, or if it is the default,
    by any other component with which the scenario is valid.
    """
    drawn = _recorded(drawn)
    try:
        records = records_of(drawn)
    except (ScenarioError, FailedScenarioError):
        return False
    if chosen[0] in SAME_RECORDS:
        return b"training_finished" in records
    for other in _without(chosen, drawn):
        try:
            return records_of(other) != records
        except (ScenarioError, FailedScenarioError):
            continue
    return False


def _recorded(drawn: RandomScenario) -> RandomScenario:
    """Return a scenario that writes all records, without forged messages."""
    scenario = deepcopy(drawn.scenario)
    scenario["output"] = {
        **scenario.get("output", {}),
        "events": True,
        "message_events": 1.0,
        "telemetry": True,
    }
    return replace(drawn, scenario=scenario, odd_messages=[])


def _without(chosen: Chosen, drawn: RandomScenario) -> Iterator[RandomScenario]:
    """Yield scenarios in which another component is in the place of one."""
    kind, name = chosen
    if kind == "fault":
        yield _changed(drawn, chosen, None)
        return
    choice = KINDS[kind]
    names = [choice.default, *choice.usable_names()] if choice.default else choice.usable_names()
    for other in dict.fromkeys(names):
        if other != name:
            yield _changed(drawn, chosen, other)


def _changed(drawn: RandomScenario, chosen: Chosen, name: str | None) -> RandomScenario:
    """Return a scenario with another component in the place of one; None removes an item of a list."""
    with loaded(drawn) as scenario:
        text = tomli_w.dumps(scenario.to_dict()).replace(f"{Path.cwd()}/", "")
        places = [location for found, location in chosen_in(scenario) if found == chosen]
    table = tomllib.loads(text)
    if isinstance(table.get("adversary"), dict):
        table["adversary"] = [table["adversary"]]
    for *path, last in reversed(places):
        part: Any = table
        for key in path:
            part = part[key]
        if name is None:
            del part[last]
        else:
            part[last] = name
    return replace(drawn, scenario=table)
