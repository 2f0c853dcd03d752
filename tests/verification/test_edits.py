"""A replay detects every single edit of a run; `verify` alone never fails with a traceback."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.errors import RunError
from rdpfl_sim.verification.replay import compare
from rdpfl_sim.verification.verify import verify
from tests.support import small_scenario
from tests.verification.changed_runs import LIVELY
from tests.verification.edits import edits

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


@pytest.mark.parametrize("name", RUNS)
def test_every_single_edit_is_detected_by_a_replay(name: str, tmp_path: Path) -> None:
    run, again = (simulate(small_scenario(**RUNS[name]), tmp_path).folder for _ in range(2))
    assert run is not None
    assert again is not None
    assert [check.first for check in [*verify(run), compare(run, again)] if check.outcome == "violated"] == []
    for edit in islice(edits(run, Random(26)), NUM_EDITS):
        path = run / edit.name
        original = path.read_bytes()
        path.write_bytes(edit.content)
        assert _differs(run, again), f"a replay does not notice: {edit}"
        with suppress(RunError):
            verify(run)
        path.write_bytes(original)


def _differs(run: Path, again: Path) -> bool:
    try:
        return compare(run, again).outcome == "violated"
    except RunError:
        return True
