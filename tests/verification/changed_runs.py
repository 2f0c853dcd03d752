"""A run with faults, floods and losses, and functions that change its files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from rdpfl_sim.verification.check import Check
from rdpfl_sim.verification.verify import verify

Records = list[dict[str, Any]]


LIVELY = {
    "rounds": 6,
    "topology": "ring",
    "method": {"name": "rdpfl", "lambda": 0.3},
    "evaluation": {"every": 2, "validation_fraction": 0.2, "consensus": True},
    "adversary": {"attack": "nan", "timing": {"name": "flood", "copies": 3}, "ids": [5]},
    "network": {
        "latency": "exponential",
        "loss": {"name": "bernoulli", "probability": 0.1},
        "duplication": 0.1,
    },
    "timing": {
        "wait": {"name": "quorum", "fraction": 0.5, "timeout_s": 0.5},
        "staleness": {"name": "keep", "max_age": 2},
        "compute": "lognormal",
    },
    "faults": [
        {"name": "crash", "clients": [1], "at_s": 1.5, "recover_after_s": 1.0},
        {"name": "partition", "sides": [[0, 1, 2]], "from_s": 2.0, "until_s": 3.0},
        {"name": "link_outage", "links": [[3, 4]], "from_s": 1.0, "until_s": 2.0},
        {"name": "slow_down", "clients": [0], "factor": 2.0, "from_s": 0.5, "until_s": 1.5},
    ],
}


def read(run: Path) -> Records:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def write(run: Path, records: Records) -> None:
    lines = [orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records]
    (run / "events.jsonl").write_bytes(b"".join(lines))


def index(records: Records, event: str, **fields: Any) -> int:
    """Return the first record of a kind with these values."""
    wanted = {"event": event, **fields}
    return next(i for i, r in enumerate(records) if all(r.get(key) == wanted[key] for key in wanted))


def violated(run: Path) -> dict[str, Check]:
    return {check.name: check for check in verify(run) if check.outcome == "violated"}


def change_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
