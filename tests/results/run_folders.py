"""Hand-written run folders, in which every value is known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import tomli_w

from rdpfl_sim.records.metrics import METRICS
from rdpfl_sim.records.schema import SCHEMA

SCENARIO: dict[str, Any] = {
    "name": "by hand",
    "seed": 5,
    "rounds": 2,
    "clients": {"count": 3},
    "output": {"events": True, "message_events": 1.0},
}
HEADINGS = {name: name for name in METRICS}
MESSAGE = {"sender": 0, "recipient": 1, "round": 1}
EVENTS: list[dict[str, Any]] = [
    {
        "event": "run_started",
        "time_s": 0.0,
        "schema": SCHEMA,
        "seed": 5,
        "num_parameters": 7,
        "byzantine": [2],
    },
    {
        "event": "fault",
        "time_s": 0.0,
        "fault": 0,
        "kind": "slow_down",
        "phase": "start",
        "clients": [1],
        "factor": 3.0,
    },
    {"event": "training_started", "time_s": 0.0, "client": 0, "round": 1, "duration_s": 1.0},
    {"event": "training_started", "time_s": 0.0, "client": 1, "round": 1, "duration_s": 3.0},
    {"event": "training_finished", "time_s": 1.0, "client": 0, "round": 1, "loss": 2.5, "num_steps": 4},
    {"event": "message_sent", "time_s": 1.0, "message": 0, **MESSAGE, "true_round": 1, "size_bytes": 28.0},
    {"event": "message_copied", "time_s": 1.2, "message": 1, **MESSAGE, "original": 0},
    {"event": "message_delivered", "time_s": 1.5, "message": 0, **MESSAGE, "delay_s": 0.5},
    {
        "event": "fault",
        "time_s": 2.0,
        "fault": 1,
        "kind": "crash",
        "phase": "start",
        "clients": [0],
        "for_good": False,
    },
    {"event": "message_sent", "time_s": 2.0, "message": 2, "sender": 2, "recipient": 1, "round": 9},
    {"event": "message_rejected", "time_s": 2.5, "message": 1, **MESSAGE, "reason": "not finite"},
    {
        "event": "message_lost",
        "time_s": 2.5,
        "message": 2,
        "sender": 2,
        "recipient": 1,
        "round": 9,
        "reason": "loss",
    },
    {"event": "training_finished", "time_s": 3.0, "client": 1, "round": 1, "loss": None, "num_steps": 1},
    {"event": "training_started", "time_s": 3.0, "client": 0, "round": 1, "duration_s": 0.5},
    {
        "event": "round_finished",
        "time_s": 3.0,
        "client": 1,
        "round": 1,
        "num_used": 1,
        "max_age": 0,
    },
    {"event": "message_used", "time_s": 3.0, "message": 0, **MESSAGE, "age": 0},
    {"event": "message_sent", "time_s": 3.0, "message": 3, "sender": 1, "recipient": 0, "round": 1},
    {"event": "message_sent", "time_s": 3.1, "message": 4, "sender": 1, "recipient": 2, "round": 1},
    {"event": "estimate", "time_s": 3.2, "client": 1, "round": 1, "moved": 0.25},
    {"event": "message_stats", "time_s": 3.2, "message": 0, **MESSAGE, "weight": 0.75},
    {
        "event": "message_delivered",
        "time_s": 3.5,
        "message": 4,
        "sender": 1,
        "recipient": 2,
        "round": 1,
        "delay_s": 0.4,
    },
]


def scores(time_s: float, accuracy: float | str, moment: str = "trained") -> dict[str, float | str]:
    """Return the columns of metrics.csv of an evaluation at a moment."""
    return {f"{moment}_time_s": time_s, f"{moment}_personal_accuracy": accuracy}


EVALUATIONS: list[dict[str, Any]] = [
    {"client": 0, "byzantine": 0, "round": 0, "hops": 2, **scores(0.0, 0.25), **scores(0.0, 0.25, "updated")},
    {"client": 2, "byzantine": 1, "round": 0, "hops": 0, **scores(0.0, 0.5)},
    {
        "client": 0,
        "byzantine": 0,
        "round": 1,
        **scores(1.0, 0.75),
        "trained_personal_loss": "inf",
        **scores(3.0, 0.625, "updated"),
    },
]


def metrics_text(rows: Iterable[Mapping[str, object]]) -> str:
    """Return the content of metrics.csv; columns that a row does not have are empty."""
    return "".join(f"{','.join(str(row.get(key, '')) for key in METRICS)}\n" for row in (HEADINGS, *rows))


def write_run(
    folder: Path,
    events: Iterable[dict[str, Any]] = EVENTS,
    summary: dict[str, Any] | None = None,
    scenario: dict[str, Any] = SCENARIO,
    byzantine: Iterable[int] = (2,),
) -> Path:
    """Write a run folder with these records."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.toml").write_text(tomli_w.dumps(scenario))
    topology = {"num_clients": 3, "edges": [[0, 1], [1, 2]], "byzantine": list(byzantine)}
    (folder / "topology.json").write_text(json.dumps(topology))
    (folder / "events.jsonl").write_text("".join(orjson.dumps(event).decode() + "\n" for event in events))
    (folder / "metrics.csv").write_text(metrics_text(EVALUATIONS))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps({"schema": SCHEMA, **summary}))
    return folder


def write_provenance(folder: Path, started_at: Iterable[str], **fields: Any) -> None:
    """Write a provenance.json with one session per start time."""
    other: dict[str, Any] = dict.fromkeys(("command", "working_folder", "device"), "")
    other |= {"code": {"commit": None, "changed": None}, "versions": {}, "machine": {}, "threads": 1}
    sessions = [{"started_at": time, **other} for time in started_at]
    content = {"scenario_hash": "", "sessions": sessions, **fields}
    (folder / "provenance.json").write_text(json.dumps(content))
