"""The report of a run, in any state."""

from __future__ import annotations

from typing import Any

import polars as pl

from rdpfl_sim.frames import Run
from rdpfl_sim.frames.run import last_evaluations
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.reports.html.accuracy import accuracy_card
from rdpfl_sim.reports.html.clients import client_cards
from rdpfl_sim.reports.html.contamination import contamination_cards
from rdpfl_sim.reports.html.estimator import clipped_share, estimator_cards
from rdpfl_sim.reports.html.facts import provenance_cards, scenario_card
from rdpfl_sim.reports.html.faults import fault_cards
from rdpfl_sim.reports.html.messages import age_card, delay_card, outcomes_card
from rdpfl_sim.reports.html.page import Card, Page, Tab, Tile, missing
from rdpfl_sim.reports.html.spacetime import spacetime_card
from rdpfl_sim.reports.html.topology import topology_card
from rdpfl_sim.reports.text import count_range, duration, escape_control, multiple

MESSAGE_COLUMNS = (
    *("sender", "recipient", "is_byzantine", "round", "sent_s", "delivered_s", "lost_s", "delay_s"),
    *("outcome", "reason", "age", "weight"),
)


def run_page(run: Run) -> Page:
    """Build the report of a run."""
    metrics, messages, rounds = (
        run.metrics,
        run.messages.select(MESSAGE_COLUMNS).collect(),
        run.rounds.collect(),
    )
    last = last_evaluations(metrics)
    end_s = _end_s(run, metrics, messages, rounds)
    contamination = contamination_cards(metrics)
    tabs = [
        Tab("Overview", _overview_cards(run, metrics, messages, contamination)),
        Tab("Clients", client_cards(run, metrics, last)),
        Tab("Topology", [topology_card(run, last, messages)]),
        Tab("Messages", _message_cards(run, messages, rounds)),
        Tab("Estimator", _estimator_cards(run, rounds)),
        Tab("Contamination", contamination),
        Tab("Faults", fault_cards(run.faults, end_s) if run.has_events else [_no_events("Faults", run)]),
        Tab("Scenario", [scenario_card(run.scenario)]),
        Tab("Provenance", provenance_cards(run)),
    ]
    return Page(
        title=escape_control(str(run.scenario.get("name", run.folder.name))),
        status=_status(run),
        facts=_facts(run),
        tiles=_tiles(run, last, rounds, messages, end_s),
        warnings=_warnings(run),
        tabs=tabs,
    )


def _overview_cards(
    run: Run, metrics: pl.DataFrame, messages: pl.DataFrame, contamination: list[Card]
) -> list[Card]:
    """Return accuracy and outcomes, and the reach of the attack or, without an attack, the delays."""
    cards = [accuracy_card(metrics)]
    if not messages.height:
        return [*cards, _no_messages("Outcomes of messages", run)]
    has_attack = len(contamination) > 1
    return [*cards, outcomes_card(messages), contamination[0] if has_attack else delay_card(messages)]


def _message_cards(run: Run, messages: pl.DataFrame, rounds: pl.DataFrame) -> list[Card]:
    if not messages.height:
        return [_no_messages("Messages", run)]
    return [spacetime_card(run, messages, rounds), age_card(messages), delay_card(messages)]


def _estimator_cards(run: Run, rounds: pl.DataFrame) -> list[Card]:
    return estimator_cards(rounds) if run.has_events else [_no_events("Estimator", run)]


def _no_messages(title: str, run: Run) -> Card:
    if not run.has_events:
        return _no_events(title, run)
    if run.message_fraction == 0:
        return missing(title, "Messages were not recorded: output.message_events is 0.")
    if run.scenario.get("method", {}).get("name") == "local":
        return missing(title, "With method local, clients send no messages.")
    return missing(title, "No message was sent.")


def _no_events(title: str, run: Run) -> Card:
    if run.scenario.get("output", {}).get("events") is False:
        return missing(title, "Events were not recorded: output.events is false.")
    return missing(title, "events.jsonl is empty or missing.")


def _end_s(run: Run, *frames: pl.DataFrame) -> float:
    """Return the simulated end of the run, or the time of its last record."""
    if "simulated_s" in run.summary:
        return float(run.summary["simulated_s"])
    latest = [frame.select(pl.col("^.*_s$").max()).rows() for frame in frames if frame.height]
    return max((value for [row] in latest for value in row if value is not None), default=0.0)


def _status(run: Run) -> str:
    return "unfinished: running or killed" if run.status is RunStatus.UNFINISHED else run.status


def _facts(run: Run) -> str:
    scenario, summary = run.scenario, run.summary
    method = summary.get("method", scenario.get("method", {}).get("name"))
    topology = summary.get("topology", scenario.get("topology", {}).get("name"))
    facts = [f"method {method}", f"attack {summary.get('attack', '?')}" if "attack" in summary else ""]
    facts += [f"topology {topology}", f"seed {scenario.get('seed')}"]
    return escape_control(" · ".join(fact for fact in facts if fact))


def _warnings(run: Run) -> list[str]:
    warnings = [str(warning) for warning in run.summary.get("warnings", [])]
    if run.status is RunStatus.UNFINISHED:
        warnings.insert(0, "This run is still running or was killed. The report shows the records so far.")
    elif run.status is RunStatus.FAILED:
        warnings.insert(0, f"This run failed: {run.summary.get('error')}")
    elif run.status.can_resume:
        warnings.insert(0, f"This run is {run.status}. Continue it with rdpfl-sim resume.")
    return [escape_control(warning) for warning in warnings]


def _tiles(
    run: Run, last: pl.DataFrame, rounds: pl.DataFrame, messages: pl.DataFrame, end_s: float
) -> list[Tile]:
    tiles = [
        *_accuracy_tiles(last),
        Tile("clients", f"{run.num_clients:,}", f"{len(run.byzantine):,} Byzantine"),
        _rounds_tile(run, last),
        *_message_tiles(run, messages),
    ]
    clipped = clipped_share(rounds)
    if clipped is not None:
        tiles.append(Tile("clipped", f"{clipped:.1%}", "of honest rounds"))
    shares = run.summary.get("telemetry", {}).get("neighbour_share")
    if shares:
        tiles.append(Tile("neighbour share", multiple(shares["p50"]), "of own training (median)"))
    wall_s = run.summary.get("wall", {}).get("seconds")
    wall = "" if wall_s is None else f"{duration(wall_s)} wall time"
    tiles.append(Tile("simulated time", duration(end_s), wall))
    num_faults = run.summary.get("num_faults", 0)
    return [*tiles, Tile("faults", f"{num_faults:,}", "changes")] if num_faults else tiles


def _accuracy_tiles(last: pl.DataFrame) -> list[Tile]:
    honest = last.filter(~pl.col("is_byzantine"), pl.col("personal_accuracy").is_finite()).sort(
        "personal_accuracy"
    )
    if not honest.height:
        return [Tile("honest accuracy", "-", "no evaluations")]
    values = honest["personal_accuracy"].to_numpy()
    return [
        Tile(
            "honest accuracy", f"{values.mean():.3f}", f"mean of {len(values):,}, spread {values.std():.3f}"
        ),
        Tile("worst honest", f"{values[0]:.3f}", f"client {honest['client'][0]}"),
    ]


def _rounds_tile(run: Run, last: pl.DataFrame) -> Tile:
    num_rounds = run.scenario.get("rounds", 0)
    done = last["round"].to_list() or [0]
    least, most = run.summary.get("rounds_done") or (min(done), max(done))
    return Tile("rounds", count_range(least, most), f"of {num_rounds:,}")


def _message_tiles(run: Run, messages: pl.DataFrame) -> list[Tile]:
    counts: dict[str, Any] = run.summary.get("messages", {})
    if not counts and run.message_fraction == 1:
        outcomes = dict(messages["outcome"].value_counts().rows())
        counts = {"sent": messages.height, **{name: outcomes.get(name, 0) for name in ("used", "lost")}}
    sent = counts.get("sent", 0)
    if not sent:
        return []
    shares = f"{counts['used'] / sent:.0%} used, {counts['lost'] / sent:.0%} lost"
    return [Tile("messages", f"{sent:,}", shares)]
