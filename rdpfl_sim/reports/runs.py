"""What a user sees of a run that is over: where it comes from, and whether its records can be true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

import rich.box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.text import escape_control

WIDTH = 68
STYLES = {"ok": "green", "violated": "bold red", "not checked": "yellow"}


def verification_table(run: str, checks: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One line a check, and below what was violated or could not be checked, in at most 80 columns."""
    table = Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("check", no_wrap=True)
    table.add_column("what it says")
    table.add_column("items", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for check in checks:
        outcome = check["outcome"]
        table.add_row(
            check["check"], check["sentence"], f"{check['items']:,}", Text(outcome, style=STYLES[outcome])
        )
    remarks = [_remark(check) for check in checks if check["outcome"] != "ok"]
    return Group(Text(escape_control(run), style="bold"), table, *remarks, _verdict(checks))


def replay_note(kinds: Iterable[str]) -> RenderableType:
    """What was not checked, as it takes a replay."""
    lines = ["Only --replay notices a change of:", *(f"- {kind}" for kind in kinds)]
    return Text("\n".join(lines), style="dim")


def provenance_table(provenance: Mapping[str, Any] | None, digest: str | None) -> RenderableType:
    """Who made a run, when, where and with what."""
    if provenance is None:
        return Text("no provenance.json: where this run comes from is not known")
    facts: list[tuple[str, str]] = []
    for session in provenance["sessions"]:
        facts += _session_facts(session)
    facts.append(("scenario", f"hash {provenance['scenario_hash']}"))
    if digest is not None:
        facts.append(("digest", digest))
    return _grid(facts)


def unfinished_lines(
    scenario: Mapping[str, Any], summary: Mapping[str, Any] | None, last: Mapping[str, Any] | None
) -> RenderableType:
    """What is known of a run without results."""
    title = Text.assemble(
        (escape_control(str(scenario.get("name"))), "bold"), f", seed {scenario.get('seed')}: "
    )
    if summary is None:
        title.append("not finished: it is still running, or was killed", style="yellow")
    else:
        title.append(escape_control(f"{summary.get('status')}: {summary.get('error')}"), style="red")
    known = "no records" if last is None else f"up to {last['time_s']:.1f} simulated seconds"
    return Group(title, _grid([("records", known)]))


def _session_facts(session: Mapping[str, Any]) -> list[tuple[str, str]]:
    machine, code, versions = session["machine"], session["code"], dict(session["versions"])
    commit = "" if code["commit"] is None else f", commit {code['commit'][:12]}"
    changed = ", with changes since" if code["changed"] else ""
    own, python = versions.pop("rdpfl-sim"), versions.pop("python")
    return [
        ("started", session["started_at"]),
        ("command", session["command"]),
        ("in", session["working_folder"]),
        ("code", f"rdpfl-sim {own}{commit}{changed}"),
        *zip(("versions", *[""] * len(versions)), _lines_of({"python": python, **versions}), strict=False),
        (
            "machine",
            f"{machine['host']}, {machine['platform']}, {machine['processor']} "
            f"({machine['instructions']}), {machine['cores']} cores",
        ),
        ("device", f"{session['device']}, {session['threads']} torch thread{'s'[: session['threads'] - 1]}"),
    ]


def _lines_of(versions: Mapping[str, str]) -> list[str]:
    """A list that is readable in a pipe, too, where nothing is wrapped."""
    text = ", ".join(f"{name}\xa0{number}" for name, number in versions.items())
    return [line.replace("\xa0", " ") for line in wrap(text, WIDTH)]


def _grid(facts: Iterable[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(Text(label, style="dim"), Text(escape_control(text)))
    return grid


def _remark(check: Mapping[str, Any]) -> RenderableType:
    """What is wrong, or missing."""
    name, outcome = check["check"], check["outcome"]
    where = "" if check["line"] is None else f" at line {check['line']:,} of events.jsonl"
    if outcome == "violated":
        times = "once" if check["violations"] == 1 else f"{check['violations']:,} times, first"
        outcome = f"violated {times}{where}"
    lines = [escape_control(line) for line in str(check["what"]).split("\n")]
    return Text(f"{name}: {outcome}: " + "\n".join(lines), style=STYLES[check["outcome"]])


def _verdict(checks: Sequence[Mapping[str, Any]]) -> Text:
    num = {outcome: sum(check["outcome"] == outcome for check in checks) for outcome in STYLES}
    parts = [f"{number} {outcome}" for outcome, number in num.items() if number]
    return Text(f"{len(checks)} checks: {', '.join(parts)}\n", style="bold")
