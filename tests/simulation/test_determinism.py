"""The same scenario and seed give the same run; delays and losses do not depend on the method."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rdpfl_sim import Scenario, simulate
from tests.support import small_scenario

ASYNCHRONOUS = {
    "topology": "small_world",
    "adversary": {"attack": "min_max", "fraction": 0.34},
    "network": {
        "latency": "pareto",
        "loss": "bernoulli",
        "bandwidth": {"name": "uplink", "bytes_per_s": 2000.0},
    },
    "timing": {
        "wait": "none",
        "staleness": "decay",
        "compute": "lognormal",
        "jitter": 0.3,
        "prefer": "newest",
    },
}


def first_difference(one: Path, other: Path) -> str | None:
    """Return the first record in which two runs differ."""
    a, b = ((folder / "events.jsonl").read_text().splitlines() for folder in (one, other))
    for number, (left, right) in enumerate(zip(a, b, strict=False), start=1):
        if left != right:
            return f"record {number}:\n  {left}\n  {right}"
    return None if len(a) == len(b) else f"{len(a)} and {len(b)} records"


@pytest.mark.parametrize("changes", [{}, ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
def test_two_runs_write_the_same_records(tmp_path: Path, changes: dict) -> None:
    one, other = (simulate(small_scenario(**changes), tmp_path / name) for name in ("a", "b"))
    assert first_difference(one.folder, other.folder) is None
    assert one.summary["digest"] == other.summary["digest"]
    metrics = [(r.folder / "metrics.csv").read_bytes() for r in (one, other)]
    assert metrics[0] == metrics[1]


def test_another_seed_is_another_run() -> None:
    digests = {simulate(small_scenario(seed=seed)).summary["digest"] for seed in (1, 2, 3)}
    assert len(digests) == 3


@pytest.mark.slow
def test_digest_does_not_depend_on_the_process_or_its_hash_seed(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(small_scenario(**ASYNCHRONOUS).to_dict()))
    program = (
        "import json, sys; from rdpfl_sim import Scenario, simulate\n"
        "print(simulate(Scenario.from_dict(json.load(open(sys.argv[1])))).summary['digest'])"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", program, str(path)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "12345")
    ]
    here = simulate(Scenario.from_dict(json.loads(path.read_text()))).summary["digest"]
    assert digests == [here, here]


def test_seed_of_torch_and_earlier_runs_have_no_influence() -> None:
    import torch

    torch.manual_seed(1)
    before = simulate(small_scenario(**ASYNCHRONOUS)).summary["digest"]
    torch.manual_seed(2)
    simulate(small_scenario(seed=9))
    assert simulate(small_scenario(**ASYNCHRONOUS)).summary["digest"] == before


def world_of(folder: Path) -> list[tuple]:
    """Return the records of the network and the clock, without those of learning."""
    kinds = {"training_started", "message_sent", "message_lost", "message_delivered"}
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    keys = ("event", "time_s", "client", "sender", "recipient", "round", "duration_s", "delay_s")
    return [tuple(line.get(key) for key in keys) for line in lines if line["event"] in kinds]


def test_another_method_or_aggregator_has_the_same_delays_losses_and_attackers(tmp_path: Path) -> None:
    methods = [
        {"name": "rdpfl", "lambda": 0.3},
        {"name": "rdpfl", "lambda": 0.3, "aggregator": "krum"},
        {"name": "direct", "lambda": 0.3, "aggregator": "trimmed_mean"},
    ]
    results = [
        simulate(small_scenario(method=m, **ASYNCHRONOUS), tmp_path / str(i)) for i, m in enumerate(methods)
    ]
    worlds = [world_of(result.folder) for result in results]
    assert len(worlds[0]) > 50
    assert worlds[0] == worlds[1] == worlds[2]
    assert len({result.summary["digest"] for result in results}) == 3
    assert len({tuple(result.summary["byzantine"]) for result in results}) == 1
