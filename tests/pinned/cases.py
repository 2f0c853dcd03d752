"""Runs whose digests are pinned, in portable arithmetic: they hold on every x86-64 processor with AVX2.

`python -m tests.pinned.cases` writes the pins for the installed version of torch, and with --print prints
the digests, as tests/pinned/portable.py needs them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.aggregators import AGGREGATORS
from rdpfl_sim.attacks import ATTACKS
from rdpfl_sim.learning.datasets.download import CLASSES
from rdpfl_sim.methods import METHODS
from rdpfl_sim.toml import read_toml
from rdpfl_sim.world.adversary.timing import TIMING_ATTACKS
from tests.support import small_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
VERSION = torch.__version__
"""The key of the pins: each version of torch may round differently."""
DIGESTS = Path(__file__).with_name("digests.json")
EVENTS = Path(__file__).with_name(f"events-{VERSION}.jsonl")
EXECUTORS = ("inline", "stacked")

CASES: dict[str, dict[str, Any]] = {
    **{f"method {name}": {"method": name} for name in sorted(METHODS)},
    **{
        f"aggregator {name}": {"method": {"name": "rdpfl", "aggregator": name, "lambda": 1.0}}
        for name in sorted(AGGREGATORS)
    },
    **{
        f"attack {name}": {"adversary": {"fraction": 0.34, "attack": name}, "method": {"lambda": 1.0}}
        for name in sorted(ATTACKS)
    },
    **{
        f"timing attack {name}": {"adversary": {"fraction": 0.34, "attack": "noise", "timing": name}}
        for name in sorted(TIMING_ATTACKS)
    },
}


def pins() -> dict[str, Any] | None:
    """Return the digests by case and executor for this version of torch, or None if it has none."""
    found: dict[str, Any] | None = json.loads(DIGESTS.read_text()).get(VERSION)
    return found


def scenarios() -> Iterator[tuple[str, Scenario]]:
    """Return every pinned case by name: all scenario files on embedded data, then single components."""
    for path in sorted(SCENARIOS.rglob("*.toml")):
        raw = read_toml(path)
        if "base" in raw or path.name == "profiles.toml" or raw.get("data", {}).get("name") in CLASSES:
            continue
        overrides = ["rounds=4", "evaluation.every=2"]
        yield str(path.relative_to(SCENARIOS).with_suffix("")), Scenario.load(path, overrides)
    deadline = {"wait": {"name": "deadline", "seconds": 1.0}, "staleness": "keep"}
    network = {"latency": {"name": "exponential", "mean_s": 0.3}, "loss": {"name": "bernoulli"}}
    for name, changes in CASES.items():
        model = {"name": "mlp", "hidden": [8]}
        yield name, small_scenario(**{"timing": deadline, "network": network, "model": model, **changes})


def digest(scenario: Scenario, executor: str) -> str:
    """Return the digest of a run with this executor."""
    raw = scenario.to_dict()
    raw["execution"] |= {"executor": executor, "threads": 1, "device": "cpu"}
    summary = simulate(Scenario.from_dict(raw)).summary
    assert summary["status"] == "finished"
    return str(summary["digest"])


def events() -> bytes:
    """Return the records of a short run with faults, losses, copies and an attack."""
    scenario = Scenario.load(
        SCENARIOS / "stress" / "everything.toml",
        ["rounds=3", "output.events=true", "execution.executor='inline'", "execution.threads=1"],
    )
    with TemporaryDirectory() as folder:
        run = simulate(scenario, folder).folder
        assert run is not None
        return (run / "events.jsonl").read_bytes()


def computed() -> Iterator[tuple[str, str]]:
    """Yield the digest of every case and executor, and a hash of the records."""
    for name, scenario in scenarios():
        for executor in EXECUTORS:
            yield f"{name}, {executor}", digest(scenario, executor)
    yield "records", blake2b(events(), digest_size=10).hexdigest()


def write() -> None:
    """Write the pins for this version of torch."""
    found = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    found[VERSION] = {
        name: {executor: digest(scenario, executor) for executor in EXECUTORS}
        for name, scenario in scenarios()
    }
    DIGESTS.write_text(json.dumps(found, indent=1) + "\n")
    EVENTS.write_bytes(events())


def main() -> None:
    """Write or print the digests of all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", help="print one digest per line, write nothing")
    if parser.parse_args().print:
        for name, found in computed():
            print(f"{name}\t{found}", flush=True)  # noqa: T201
    else:
        write()


if __name__ == "__main__":
    main()
