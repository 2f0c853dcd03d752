"""The outcome of `rdpfl-sim verify` on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import rich.box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.text import escape_control

STYLES = {"ok": "green", "violated": "bold red", "not checked": "yellow"}


def verification_table(run: str, checks: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return one row per check, then details of those that failed or were not possible, in 80 columns."""
    table = Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("check", no_wrap=True)
    table.add_column("invariant")
    table.add_column("items", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for check in checks:
        outcome = Text(check["outcome"], style=STYLES[check["outcome"]])
        table.add_row(check["check"], check["sentence"], f"{check['items']:,}", outcome)
    details = [_detail(check) for check in checks if check["outcome"] != "ok"]
    return Group(Text(escape_control(run), style="bold"), table, *details, _totals(checks))


def replay_note(changes: Iterable[str]) -> RenderableType:
    """Return a list of the changes that only a replay can detect."""
    lines = ["Only --replay detects a change of:", *(f"- {change}" for change in changes)]
    return Text("\n".join(lines), style="dim")


def _detail(check: Mapping[str, Any]) -> RenderableType:
    outcome = check["outcome"]
    if outcome == "violated":
        place = "" if check["line"] is None else f" at line {check['line']:,} of events.jsonl"
        times = "once" if check["violations"] == 1 else f"{check['violations']:,} times, first"
        outcome = f"violated {times}{place}"
    lines = [escape_control(line) for line in str(check["what"]).split("\n")]
    return Text(f"{check['check']}: {outcome}: " + "\n".join(lines), style=STYLES[check["outcome"]])


def _totals(checks: Sequence[Mapping[str, Any]]) -> Text:
    counts = {outcome: sum(check["outcome"] == outcome for check in checks) for outcome in STYLES}
    totals = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    return Text(f"{len(checks)} checks: {', '.join(totals)}\n", style="bold")
