"""Provenance: the code, command and machine of the run, and the check of the theoretical bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rdpfl_sim.files import JsonObject
from rdpfl_sim.reports.html.page import Card, HtmlTable
from rdpfl_sim.reports.html.tab import RunRecords, run_tab
from rdpfl_sim.reports.text import quantity
from rdpfl_sim.results import Run

MAX_ROWS = 100


@run_tab("Provenance", position=90)
def provenance_tab(records: RunRecords) -> Sequence[Card]:
    """Show the identity of the run, one card per session, and the theory check."""
    run = records.run
    sessions = run.provenance.get("sessions", [])
    cards = [_session_card(session, i, len(sessions)) for i, session in enumerate(sessions, start=1)]
    if not cards:
        cards = [Card("Provenance", missing="provenance.json is missing: the origin of this run is unknown.")]
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


def _session_card(session: JsonObject, number: int, num_sessions: int) -> Card:
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
        "arithmetic": session.get("arithmetic", "native"),  # earlier versions had no other
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


def _format(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}"


def _facts_table(facts: Mapping[str, object]) -> HtmlTable:
    return HtmlTable((), [(key, value) for key, value in facts.items() if value not in (None, "")], "facts")
