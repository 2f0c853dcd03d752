"""Collect the results of the sweeps as CSV files with one row per run, for figures and tables.

python analysis/findings/collect.py FOLDER [PROFILE]      (FOLDER has the sweeps of this profile)

A run replaces the row with the same labels and seed. Rows of runs that FOLDER does not have are kept.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import polars as pl

from rdpfl_sim.results import Sweep

RESULTS = Path(__file__).parent / "results"
KEPT = {
    "accuracy.honest.personal.mean": "accuracy",
    "accuracy.honest.personal.worst": "worst",
    "accuracy.all.personal.mean": "accuracy_of_all",
    "updated.accuracy.honest.personal.mean": "updated_accuracy",
    "updated.accuracy.honest.personal.worst": "updated_worst",
    "simulated_s": "simulated_s",
    "time_to_accuracy_s.0.8": "seconds_to_0.80",
    "time_to_accuracy_s.0.85": "seconds_to_0.85",
    "telemetry.rounds.all.used_per_round": "used_per_round",
    "telemetry.rounds.all.clipped": "clipped",
    "theory.num_judged": "num_judged",
    "theory.num_gamma_small_enough": "num_gamma_small_enough",
    "telemetry.by_hops.1.personal_accuracy": "accuracy_1_hop",
    "telemetry.by_hops.2.personal_accuracy": "accuracy_2_hops",
    "telemetry.by_hops.3.personal_accuracy": "accuracy_3_hops",
}


def collect(folder: Path, profile: str = "") -> Path:
    """Write the results of one sweep into the file with its name, without the profile."""
    sweep = Sweep(folder)
    found = sweep.results
    outside = [len(run.summary["neighbourhood.outside_threat_model"]) for run in sweep.runs]
    found = found.with_columns(num_outside_threat_model=pl.Series(outside))
    columns = [pl.col(axis) for axis in sweep.axes]
    columns += [pl.col("seed"), pl.col("num_outside_threat_model")]
    columns += [*(pl.col(old).alias(new) for old, new in KEPT.items() if old in found.columns)]
    path = RESULTS / f"{sweep.name.removesuffix(f'-{profile}')}.csv"
    _merge(path, found.select(columns), [*sweep.axes, "seed"])
    return path


def _merge(path: Path, found: pl.DataFrame, keys: Sequence[str]) -> None:
    """Write rows into a CSV file; a new row replaces the old one that has the same values in `keys`."""
    text = found.write_csv(float_precision=6)
    old = list(csv.DictReader(path.open())) if path.exists() else []
    if old and not set(keys) <= set(old[0]):
        raise ValueError(f"{path} has no column {', '.join(sorted(set(keys) - set(old[0])))}")
    rows = {tuple(row[key] for key in keys): row for row in [*old, *csv.DictReader(StringIO(text))]}
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        fields = dict.fromkeys([*(old[0] if old else []), *found.columns])
        writer = csv.DictWriter(file, list(fields), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())


def collect_breakdowns(folder: Path) -> Path:
    """Write the breakdown fractions: one row per method, graph and seed."""
    rows = []
    for path in sorted(folder.glob("*-adversary.fraction/breakdown.json")):
        graph, _, method = path.parent.name.removesuffix("-adversary.fraction").rpartition("-")
        rows += [
            {"topology": graph, "method": method, "seed": int(seed), **found}
            for seed, found in json.loads(path.read_text())["seeds"].items()
        ]
    path = RESULTS / "breakdown.csv"
    _merge(path, pl.DataFrame(rows, infer_schema_length=None), ["topology", "method", "seed"])
    return path


if __name__ == "__main__":
    folder, profile = Path(sys.argv[1]), "".join(sys.argv[2:])
    if any(folder.glob("*/breakdown.json")):
        print(collect_breakdowns(folder))
    for plan in sorted(folder.glob("*/sweep.json")):
        print(collect(plan.parent, profile))
