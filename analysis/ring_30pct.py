"""The figures in the comment of scenarios/ring_30pct.toml: methods and attacks on the ring, over seeds.

    python analysis/ring_30pct.py [--seeds 10] [--workers 2]

All cases of a seed share shards, links, losses, delays and attackers, so that differences are paired.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread per worker process

import numpy as np

from rdpfl_sim import Scenario, simulate

SCENARIO = Path(__file__).parents[1] / "scenarios" / "ring_30pct.toml"
CLEAN = ["adversary.attack=none", "adversary.fraction=0.0"]
FLIP = ["adversary.attack={name = 'sign_flip', scale = 20.0}"]
MEAN = ["method={name = 'direct', aggregator = 'mean', lambda = 1.0}"]
CASES: dict[str, list[str]] = {
    "local training": ["method=local"],
    "clean, mean": CLEAN + MEAN,
    "clean, R-DPFL": CLEAN,
    "noise, mean": MEAN,
    "noise, R-DPFL": [],
    "noise, R-DPFL without clip (G_d alone)": ["method.clip=false"],
    "noise, R-DPFL without G_d (clip alone)": ["method.max_norm=1e9"],
    "sign flip x 20, mean": FLIP + MEAN,
    "sign flip x 20, R-DPFL": FLIP,
}


def accuracy(job: tuple[str, int]) -> float:
    """Mean personal accuracy of the honest clients of one run."""
    case, seed = job
    quick = ["evaluation.every=1000000", "evaluation.global_test=false"]
    summary = simulate(Scenario.load(SCENARIO, CASES[case] + quick, seed)).summary
    return float(summary["accuracy"]["honest"]["personal"]["mean"])


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    print(f"{'':42}accuracy   less local training (paired, 95 %), {len(seeds)} seeds")
    with ProcessPoolExecutor(options.workers) as pool:
        runs = {case: [pool.submit(accuracy, (case, seed)) for seed in seeds] for case in CASES}
        for case, futures in runs.items():
            row = np.array([future.result() for future in futures])
            gain = row - np.array([future.result() for future in runs["local training"]])
            half = 1.96 * gain.std(ddof=1) / np.sqrt(len(seeds))
            print(f"{case:42}{row.mean():8.3f}   {gain.mean():+.3f} +- {half:.3f}", flush=True)


if __name__ == "__main__":
    main()
