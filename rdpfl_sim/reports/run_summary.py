"""Results and provenance of a run, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING

import rich.box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdpfl_sim.records import metrics
from rdpfl_sim.records.summary import OUTCOMES, RoundRange
from rdpfl_sim.reports.text import (
    duration,
    escape_control,
    fact_grid,
    first_items,
    multiple,
    quantity,
    score,
)

if TYPE_CHECKING:
    from rdpfl_sim.files import JsonObject

TEXT_WIDTH = 68


def summary_table(summary: JsonObject) -> RenderableType:
    """Return the results of a run in at most 80 columns."""
    num_clients, num_byzantine = summary["num_clients"], len(summary["byzantine"])
    clients, rounds = quantity(num_clients, "client"), quantity(summary["rounds"], "round")
    status = f", seed {summary['seed']}: {summary['status']}{_rounds_done(summary)}"
    title = Text.assemble((escape_control(summary["name"]), "bold"), status)
    setting = (
        f"{summary['method']}, attack {summary['attack']}, topology {summary['topology']}, "
        f"{clients}, {num_byzantine:,} Byzantine, {rounds}"
    )
    table = Table(box=rich.box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("accuracy", no_wrap=True)
    first, *others = (statistic.heading for statistic in metrics.STATISTICS)
    parts = ["global", *(["validation"] if summary["accuracy"]["all"].get("validation") else [])]
    for heading in (f"personal {first}", *others, *(f"{part} mean" for part in parts)):
        table.add_column(heading, justify="right")
    for group, size, style in (("honest", num_clients - num_byzantine, "bold"), ("all", num_clients, "")):
        accuracy = summary["accuracy"][group]
        personal = accuracy["personal"] or {}
        values = [personal.get(statistic.key) for statistic in metrics.STATISTICS]
        values += [(accuracy[part] or {}).get("mean") for part in parts]
        table.add_row(f"{group} ({size:,})", *map(score, values), style=style)
    return Group(title, Text(escape_control(setting)), table, fact_grid(_facts(summary)))


def unfinished_lines(
    scenario: JsonObject, summary: JsonObject | None, last: JsonObject | None
) -> RenderableType:
    """Return the status of a run without results; `last` is its last record."""
    name = escape_control(str(scenario.get("name")))
    title = Text.assemble((name, "bold"), f", seed {scenario.get('seed')}: ")
    if summary is None:
        title.append("not finished: still running, or killed", style="yellow")
    else:
        title.append(escape_control(f"{summary.get('status')}: {summary.get('error')}"), style="red")
    extent = "no records" if last is None else f"up to {last['time_s']:.1f} simulated seconds"
    return Group(title, fact_grid([("records", extent)]))


def provenance_table(provenance: JsonObject | None, digest: str | None) -> RenderableType:
    """Return date, command, code, versions and machine of every session of a run."""
    if provenance is None:
        return Text("no provenance.json: the origin of this run is unknown")
    facts = [fact for session in provenance["sessions"] for fact in _session_facts(session)]
    facts.append(("scenario", f"hash {provenance['scenario_hash']}"))
    if digest is not None:
        facts.append(("digest", digest))
    return fact_grid(facts)


def _facts(summary: JsonObject) -> Iterator[tuple[str, str]]:
    after, other = metrics.MOMENTS["updated" if summary.get("moment") == "updated" else "trained"], ""
    if updated := ((summary.get("updated") or {}).get("accuracy") or {}).get("honest"):
        mean = (updated["personal"] or {}).get("mean")
        other = f"; {metrics.MOMENTS['updated']}, the honest mean is {score(mean)}"
    yield "measured", f"{after}{other}"
    messages, neighbourhood, telemetry = summary["messages"], summary["neighbourhood"], summary["telemetry"]
    yield "messages", f"{messages['sent']:,} sent: {_counts(messages, 'delivered', 'lost', 'in_flight')}"
    yield "", f"{messages['delivered']:,} delivered: {_counts(messages, *OUTCOMES, 'left_over')}"
    if outside := neighbourhood["outside_threat_model"]:
        yield "neighbours", f"at least half are Byzantine: honest clients {first_items(outside)}"
    if isolated := neighbourhood["isolated"]:
        yield "isolated", f"clients without neighbours: {first_items(isolated)}"
    if (consensus := summary.get("consensus")) is not None:
        accuracy, distance = score(consensus["accuracy"]), consensus["distance"]
        yield "average", f"the honest clients' average model has global accuracy {accuracy}"
        yield "", f"mean distance of their models from it: {'-' if distance is None else f'{distance:.4g}'}"
    rounds = telemetry["rounds"]["all"]
    if rounds["clipped"] is not None:
        clipped, bounded = rounds["clipped"], rounds["bounded"]
        yield "estimator", f"clipped in {clipped:.1%} of honest rounds, bounded by G_d in {bounded:.1%}"
    if shares := telemetry.get("neighbour_share"):
        factor = multiple(shares["p50"])
        yield "step", f"median step due to neighbours: {factor} times the step of local training"
    byzantine = telemetry["messages_from"]["byzantine"]
    if byzantine["relative_weight"] is not None:
        weight, ignored = byzantine["relative_weight"], byzantine["ignored"]
        yield (
            "influence",
            f"Byzantine messages have {weight:.2f} times an equal share; {ignored:.0%} are ignored",
        )
    if summary["num_faults"]:
        yield "faults", f"{quantity(summary['num_faults'], 'change')} to clients or the network"
    wall = summary["wall"]
    yield (
        "time",
        f"{duration(summary['simulated_s'])} simulated, {duration(wall['seconds'])} on the wall clock",
    )
    yield "device", wall["trained_on"]
    yield "digest", summary["digest"][:16]


def _rounds_done(summary: JsonObject) -> str:
    rounds = RoundRange.of_summary(summary, summary["rounds"])
    return "" if rounds is None or rounds.is_complete else f" ({rounds} rounds done)"


def _counts(messages: Mapping[str, int], first: str, *others: str) -> str:
    """Return the number of messages by outcome; only the first may be zero."""
    keys = [first, *(key for key in others if messages[key])]
    return ", ".join(f"{messages[key]:,} {key.replace('_', ' ')}" for key in keys)


def _session_facts(session: JsonObject) -> Iterator[tuple[str, str]]:
    machine, code, versions = session["machine"], session["code"], dict(session["versions"])
    commit = "" if code["commit"] is None else f", commit {code['commit'][:12]}"
    changed = ", with uncommitted changes" if code["changed"] else ""
    own, python = versions.pop("rdpfl-sim"), versions.pop("python")
    yield "started", session["started_at"]
    yield "command", session["command"]
    yield "in", session["working_folder"]
    yield "code", f"rdpfl-sim {own}{commit}{changed}"
    for number, line in enumerate(_wrap_versions({"python": python, **versions})):
        yield "" if number else "versions", line
    yield (
        "machine",
        f"{machine['host']}, {machine['platform']}, {machine['processor']} "
        f"({machine['instructions']}), {machine['cores']} cores",
    )
    arithmetic = session.get("arithmetic", "native")  # earlier versions had no other
    threads = quantity(session["threads"], "torch thread")
    yield "device", f"{session['device']}, {threads}, {arithmetic} arithmetic"


def _wrap_versions(versions: Mapping[str, str]) -> list[str]:
    """Wrap between names, because rich does not wrap output to a pipe."""
    text = ", ".join(f"{name}\xa0{version}" for name, version in versions.items())
    return [line.replace("\xa0", " ") for line in wrap(text, TEXT_WIDTH)]
