"""Where a run comes from: its scenario, provenance and theory, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

import tomli_w

from rdpfl_sim.frames import Run
from rdpfl_sim.reports.html.page import Card, missing, table

KEY = re.compile(r"^([\w\"'.\-]+)( = )(.*)$")


def scenario_card(scenario: Mapping[str, Any]) -> Card:
    """The resolved scenario, as TOML."""
    lines = "\n".join(map(_coloured, tomli_w.dumps(dict(scenario)).splitlines()))
    return Card(
        "Scenario", "Every option with its value, as it was run.", html=f"<pre>{lines}</pre>", wide=True
    )


def _coloured(line: str) -> str:
    if line.startswith("["):
        return f'<span class="section">{escape(line)}</span>'
    found = KEY.match(line)
    if found is None:
        return escape(line)
    key, equals, value = map(escape, found.groups())
    return f'<span class="key">{key}</span>{equals}{value}'


def provenance_cards(run: Run) -> list[Card]:
    """Who made it, when, where and with what; and how the theorem fared, if it was asked."""
    sessions = run.provenance.get("sessions", [])
    cards = [_session(session, place, len(sessions)) for place, session in enumerate(sessions, start=1)]
    if not cards:
        cards = [
            missing("Provenance", "There is no provenance.json: where this run comes from is not known.")
        ]
    return [_identity(run), *cards, *_theory(run)]


def _identity(run: Run) -> Card:
    facts = {
        "folder": run.folder.resolve().name,
        "status": run.status,
        "error": run.summary.get("error"),
        "digest": run.summary.get("digest"),
        "scenario hash": run.provenance.get("scenario_hash"),
        "model parameters": run.summary.get("num_parameters"),
    }
    return Card("Identity", html=_facts(facts), wide=True)


def _session(session: Mapping[str, Any], place: int, num: int) -> Card:
    code, machine = session.get("code", {}), session.get("machine", {})
    versions = session.get("versions", {})
    changed = " (with changes since)" if code.get("changed") else ""
    facts = {
        "started": session.get("started_at"),
        "command": session.get("command"),
        "in": session.get("working_folder"),
        "commit": f"{code['commit']}{changed}" if code.get("commit") else None,
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "machine": ", ".join(str(value) for value in machine.values()),
        "device": f"{session.get('device')}, {session.get('threads')} torch thread(s)",
    }
    title = "Provenance" if num == 1 else f"Provenance: session {place} of {num}"
    return Card(title, html=_facts(facts), wide=True)


def _theory(run: Run) -> list[Card]:
    theory = run.summary.get("theory")
    if not theory:
        return []
    columns = ("mean_square_gradient", "bound", "bound_holds", "gamma", "gamma_limit", "L", "G_g")
    rows = [
        (f"client {client}", *(_number(verdict.get(column)) for column in columns))
        for client, verdict in [*theory["clients"].items()][:100]
    ]
    text = (
        f"The bound of eq. 18 holds for {theory['num_bound_holds']} of {theory['num_judged']} "
        f"honest clients; gamma is small enough for {theory['num_gamma_small_enough']}."
    )
    return [Card("Theory beside the run", text, html=table(("", *columns), rows, "figures"), wide=True)]


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:.4g}"


def _facts(facts: Mapping[str, Any]) -> str:
    return table((), [(key, value) for key, value in facts.items() if value not in (None, "")], "facts")
