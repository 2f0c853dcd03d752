"""The report of a run, finished or not."""

from __future__ import annotations

import polars as pl

from rdpfl_sim.records.metrics import MOMENTS
from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.reports.html.page import Page, Tile
from rdpfl_sim.reports.html.tab import RunRecords, run_tabs
from rdpfl_sim.reports.html.tabs.estimator import limit_share
from rdpfl_sim.reports.text import duration, escape_control, multiple
from rdpfl_sim.results import Run


def run_page(run: Run) -> Page:
    """Build the report of a run."""
    records = RunRecords(run)
    return Page(
        title=escape_control(str(run.scenario.get("name", run.folder.name))),
        status="unfinished: running or killed" if run.status is RunStatus.UNFINISHED else run.status,
        facts=_facts(run),
        tiles=_tiles(records),
        warnings=_warnings(run),
        tabs=run_tabs(records),
    )


def _facts(run: Run) -> str:
    scenario, summary = run.scenario, run.summary
    method = summary.get("method", scenario.get("method", {}).get("name"))
    topology = summary.get("topology", scenario.get("topology", {}).get("name"))
    attack = [f"attack {summary['attack']}"] if "attack" in summary else []
    facts = [
        *(f"method {method}", *attack, f"topology {topology}", f"seed {scenario.get('seed')}"),
        f"accuracy {MOMENTS[run.moment]}",
    ]
    return escape_control(" · ".join(facts))


def _warnings(run: Run) -> list[str]:
    warnings = [str(warning) for warning in run.summary.get("warnings", [])]
    if run.status is RunStatus.UNFINISHED:
        warnings.insert(0, "This run is still running or was killed. The report shows the records so far.")
    elif run.status is RunStatus.FAILED:
        warnings.insert(0, f"This run failed: {run.summary.get('error')}")
    elif run.status.can_resume:
        warnings.insert(0, f"This run is {run.status}. Continue it with rdpfl-sim resume.")
    return [escape_control(warning) for warning in warnings]


def _tiles(records: RunRecords) -> list[Tile]:
    run = records.run
    tiles = [
        *_accuracy_tiles(records.last),
        Tile("clients", f"{run.num_clients:,}", f"{len(run.byzantine):,} Byzantine"),
        Tile("rounds", run.round_range.done, f"of {run.round_range.planned:,}"),
        *_message_tiles(run, records.messages),
    ]
    for flag in ("clipped", "bounded"):
        share = limit_share(records.rounds, flag)
        if share is not None:
            tiles.append(Tile(flag, f"{share:.1%}", "of honest rounds"))
    shares = run.summary.get("telemetry", {}).get("neighbour_share")
    if shares:
        tiles.append(Tile("neighbour step", multiple(shares["p50"]), "times local training (median)"))
    wall_s = run.summary.get("wall", {}).get("seconds")
    wall = "" if wall_s is None else f"{duration(wall_s)} wall time"
    tiles.append(Tile("simulated time", duration(records.end_s), wall))
    num_faults = run.summary.get("num_faults", 0)
    if num_faults:
        tiles.append(Tile("faults", f"{num_faults:,}", "change" if num_faults == 1 else "changes"))
    return tiles


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


def _message_tiles(run: Run, messages: pl.DataFrame) -> list[Tile]:
    counts: dict[str, int] = run.summary.get("messages", {})
    if not counts and run.message_fraction == 1:
        outcomes = dict(messages["outcome"].value_counts().rows())
        counts = {"sent": messages.height, **{name: outcomes.get(name, 0) for name in ("used", "lost")}}
    sent = counts.get("sent", 0)
    if not sent:
        return []
    shares = f"{counts['used'] / sent:.0%} used, {counts['lost'] / sent:.0%} lost"
    return [Tile("messages", f"{sent:,}", shares)]
