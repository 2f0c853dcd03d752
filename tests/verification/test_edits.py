"""A single edit of any file of a run is detected: nearly always from the files, always by a replay."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.errors import RunError, ScenarioError
from rdpfl_sim.verification.replay import compare
from rdpfl_sim.verification.verify import verify
from tests.support import small_scenario
from tests.verification.edits import Changed, edits
from tests.verification.test_tampering import LIVELY

NUM_EDITS = 200
RUNS: dict[str, dict[str, Any]] = {
    "faults and floods": LIVELY,
    "theory": {
        "topology": "complete",
        "method": {"name": "rdpfl", "lambda": 0.5, "aggregator": {"name": "trimmed_mean", "trim": 0.2}},
        "adversary": {"ids": [1], "attack": "sign_flip"},
        "evaluation": {"every": 2, "theory": True},
    },
    "models over a reliable transport": {
        "topology": {"name": "erdos_renyi", "p": 0.6},
        "method": "balance",
        "adversary": {"ids": [2], "attack": "noise"},
        "network": {"latency": "exponential", "transport": "reliable", "loss": "bernoulli"},
        "timing": {"wait": "none", "staleness": "keep", "compute": "lognormal"},
        "faults": [{"name": "resample_topology", "every_s": 2.0}],
    },
}
ONLY_BY_REPLAY = [
    r"events.jsonl: message_stats\.(distance_to_own|distance_to_predicted|weight)",
    r"events.jsonl: message_sent\.size_bytes",
    r"events.jsonl: swapped (message_\w+ and \w+|\w+ and message_\w+)",
    r"events.jsonl: message_lost\.(time_s|reason)",
    r"events.jsonl: message_rejected\.reason",
    r"summary.json: warnings\.\d+",
    r"summary.json: theory\.clients\.\d+\.(G_g|sigma_u|bound)",
]
"""The kinds in `rdpfl_sim.verification.replay` that occur in these runs."""


def is_noticed(run: Path) -> bool:
    """Return whether `rdpfl-sim verify` exits with an error."""
    try:
        return any(check.outcome == "violated" for check in verify(run))
    except (ScenarioError, RunError):
        return True


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_single_edit_is_detected_by_a_replay_and_most_by_verify(name: str, tmp_path: Path) -> None:
    run, again = (simulate(small_scenario(**RUNS[name]), tmp_path).folder for _ in range(2))
    assert run is not None
    assert again is not None
    assert not is_noticed(run)
    assert compare(run, again).outcome == "ok"
    passed: list[Changed] = []
    for edit in islice(edits(run, Random(26)), NUM_EDITS):
        path = run / edit.name
        original = path.read_bytes()
        path.write_bytes(edit.content)
        try:
            assert _differs(run, again), f"a replay does not notice: {edit}"
            if not is_noticed(run):
                passed.append(edit)
        finally:
            path.write_bytes(original)
    unnamed = [str(edit) for edit in passed if not any(re.fullmatch(k, str(edit)) for k in ONLY_BY_REPLAY)]
    assert unnamed == []
    assert len(passed) <= 0.05 * NUM_EDITS, [str(edit) for edit in passed]


def _differs(run: Path, again: Path) -> bool:
    try:
        return compare(run, again).outcome == "violated"
    except RunError:
        return True
