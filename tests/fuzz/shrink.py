"""Reduce a failing scenario to a minimal one that fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tests.fuzz.scenarios import RandomScenario, Table

MAX_RUNS = 400


def shrink(drawn: RandomScenario, fails: Callable[[RandomScenario], bool]) -> RandomScenario:
    """Return the smallest scenario found by removing and simplifying parts, one at a time."""
    num_runs, improves = 0, True
    while improves:
        improves = False
        for smaller in _smaller(drawn):
            num_runs += 1
            if num_runs > MAX_RUNS:
                return drawn
            if fails(smaller):
                drawn, improves = smaller, True
                break
    return drawn


def _smaller(drawn: RandomScenario) -> Iterator[RandomScenario]:
    """Yield scenarios with one part less, the largest parts first."""
    if drawn.odd_messages:
        half = len(drawn.odd_messages) // 2
        for messages in ([], drawn.odd_messages[:half], drawn.odd_messages[half:]):
            if len(messages) < len(drawn.odd_messages):
                yield replace(drawn, odd_messages=messages)
    for scenario in _smaller_tables(drawn.scenario):
        text = repr(scenario)
        files = {name: content for name, content in drawn.files.items() if name in text or "folder" in text}
        yield replace(drawn, scenario=scenario, files=files)


def _smaller_tables(scenario: Table) -> Iterator[Table]:
    """Yield copies of a table without one key or item, or with one simpler value, outer ones first."""
    places = sorted(_places(scenario), key=len)
    for place in places:
        if place[-1] != "name":
            smaller = deepcopy(scenario)
            part = _part(smaller, place[:-1])
            del part[place[-1]]
            yield smaller
    for place in places:
        for value in _simpler(_part(scenario, place)):
            smaller = deepcopy(scenario)
            _part(smaller, place[:-1])[place[-1]] = value
            yield smaller


def _places(part: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        yield (*before, key)
        yield from _places(value, (*before, key))


def _part(table: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        table = table[key]
    return table


def _simpler(value: Any) -> Iterator[Any]:
    """Yield simpler values: a component without options, and smaller or rounder numbers."""
    if isinstance(value, dict) and len(value) > 1 and "name" in value:
        yield {"name": value["name"]}
    elif isinstance(value, bool):
        return
    elif isinstance(value, int) and value > 1:
        yield from dict.fromkeys((1, value // 2, value - 1))
    elif isinstance(value, float):
        yield from (
            simple
            for simple in (1.0, float(round(value)), round(value, 1))
            if len(repr(simple)) < len(repr(value))
        )
