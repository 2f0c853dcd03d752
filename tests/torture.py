"""200 kills at random moments (`python -m tests.torture`): every run must end as if nobody had killed it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

from rdpfl_sim import Scenario
from tests.killing import finished, killed_by_the_clock

SCENARIOS = Path(__file__).parents[1] / "scenarios"
OVERRIDES = [
    "model=softmax",
    "evaluation.global_test=false",
    "checkpoint.every_rounds=1",
    "output.figures=false",
]
NAMES = ["complete_clean", "small_world_async", "stress/everything", "stress/reliable_transport"]
KILLS_PER_RUN = 10
RECORDS = ("events.jsonl", "metrics.csv", "topology.json", "scenario.toml")


def main() -> int:
    """Kill runs of each scenario in turn, several times each, and compare what they leave behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random, num_kills, num_runs = Random(options.seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        raws = [Scenario.load(SCENARIOS / f"{name}.toml", OVERRIDES).to_dict() for name in NAMES]
        wholes = [finished(raw, Path(folder) / f"whole-{k}") for k, raw in enumerate(raws)]
        while num_kills < options.kills:
            which = num_runs % len(raws)
            parent = Path(folder) / f"run-{num_runs}"
            times = 0
            while times < KILLS_PER_RUN and killed_by_the_clock(raws[which], parent, random.expovariate(0.5)):
                times += 1
            num_kills += times
            different = _different(wholes[which], finished(raws[which], parent))
            outcome = f"killed {times} times, {different or 'the same'}"
            print(f"{num_kills:4d} kills: {NAMES[which]}, {outcome}", flush=True)  # noqa: T201
            if different:
                return 1
            num_runs += 1
    return 0


def _different(whole: Path, other: Path) -> str:
    names = [name for name in RECORDS if (whole / name).read_bytes() != (other / name).read_bytes()]
    return f"DIFFERENT {', '.join(names)}" if names else ""


if __name__ == "__main__":
    sys.exit(main())
