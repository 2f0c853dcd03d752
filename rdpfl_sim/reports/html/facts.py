"""The scenario, the provenance and the theory check of a run, as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import tomli_w

from rdpfl_sim.frames import Run
from rdpfl_sim.reports.html.page import Card, HtmlTable, missing
from rdpfl_sim.reports.text import quantity

MAX_ROWS = 100
KEY_AND_VALUE = re.compile(r"^([\w\"'.\-]+) = (.*)$")


@dataclass(frozen=True)
class TomlLine:
    """A line of a TOML file; `text` is the whole line, or the value if there is a key."""

    text: str
    key: str = ""
    is_table: bool = False


@dataclass(frozen=True)
class TomlListing:
    """A TOML file with highlighted keys, in blocks that stay on one column."""

    blocks: Sequence[Sequence[TomlLine]]
    template: ClassVar[str] = "toml.html"


def scenario_card(scenario: Mapping[str, Any]) -> Card:
    """Show the resolved scenario as TOML."""
    lines = _join_arrays(tomli_w.dumps(dict(scenario)).splitlines())
    groups = groupby(lines, key=bool)  # blank lines separate blocks
    blocks = [[_toml_line(line) for line in group] for is_block, group in groups if is_block]
    text = "The resolved scenario: every option with the value used in this run."
    return Card("Scenario", text, content=TomlListing(blocks), wide=True)


def _join_arrays(lines: Iterable[str]) -> list[str]:
    """Write each array on one line; tomli_w writes one line per element.

    >>> _join_arrays(["a = 1", "b = [", "    [", "        1,", "        2,", "    ],", "]", "c = []"])
    ['a = 1', 'b = [[1, 2]]', 'c = []']
    """
    joined: list[str] = []
    depth = 0
    for line in lines:
        text = line.strip() + (" " if depth and line.endswith(",") else "")
        if text.startswith("]"):
            joined[-1] = joined[-1].removesuffix(", ") + text
            depth -= 1
        elif depth:
            joined[-1] += text
        else:
            joined.append(text)
        depth += line.endswith("[")
    return joined


def _toml_line(line: str) -> TomlLine:
    match = KEY_AND_VALUE.match(line)
    return TomlLine(match[2], key=match[1]) if match else TomlLine(line, is_table=line.startswith("["))


def provenance_cards(run: Run) -> list[Card]:
    """Show which code, command and machine produced the run, and whether the theory's bound holds."""
    sessions = run.provenance.get("sessions", [])
    cards = [_session_card(session, i, len(sessions)) for i, session in enumerate(sessions, start=1)]
    if not cards:
        cards = [missing("Provenance", "provenance.json is missing: the origin of this run is unknown.")]
    return [_identity_card(run), *cards, *_theory_cards(run)]


def _identity_card(run: Run) -> Card:
    facts = {
        "folder": run.folder.resolve().name,
        "status": run.status,
        "error": run.summary.get("error"),
        "digest": run.summary.get("digest"),
        "scenario hash": run.provenance.get("scenario_hash"),
        "model parameters": run.summary.get("num_parameters"),
    }
    return Card("Identity", content=_facts_table(facts), wide=True)


def _session_card(session: Mapping[str, Any], number: int, num_sessions: int) -> Card:
    code, machine = session.get("code", {}), dict(session.get("machine", {}))
    versions = session.get("versions", {})
    changed = " (with uncommitted changes)" if code.get("changed") else ""
    if "cores" in machine:
        machine["cores"] = f"{machine['cores']} cores"
    facts = {
        "started": session.get("started_at"),
        "command": session.get("command"),
        "folder": session.get("working_folder"),
        "commit": f"{code['commit']}{changed}" if code.get("commit") else None,
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "machine": ", ".join(str(value) for value in machine.values()),
        "device": session.get("device"),
        "torch threads": session.get("threads"),
    }
    title = "Provenance" if num_sessions == 1 else f"Provenance: session {number} of {num_sessions}"
    return Card(title, content=_facts_table(facts), wide=True)


def _theory_cards(run: Run) -> list[Card]:
    theory = run.summary.get("theory")
    if not theory:
        return []
    columns = ("mean_square_gradient", "bound", "bound_holds", "gamma", "gamma_limit", "L", "G_g")
    rows = [
        (f"client {client}", *(_format(values.get(column)) for column in columns))
        for client, values in [*theory["clients"].items()][:MAX_ROWS]
    ]
    text = (
        f"The bound of eq. 18 holds for {theory['num_bound_holds']} of "
        f"{quantity(theory['num_judged'], 'honest client')}; gamma is small enough for "
        f"{theory['num_gamma_small_enough']}."
    )
    return [Card("Theory", text, content=HtmlTable(("", *columns), rows, "figures"), wide=True)]


def _format(value: Any) -> str:
    if value is None:
        return "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:.4g}"


def _facts_table(facts: Mapping[str, Any]) -> HtmlTable:
    return HtmlTable((), [(key, value) for key, value in facts.items() if value not in (None, "")], "facts")
