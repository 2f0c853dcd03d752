"""The result of a search for a breakdown point, per seed and over all seeds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median_low

from rdpfl_sim.intervals import MeanInterval, mean_interval
from rdpfl_sim.records.run_folder import write_atomically
from rdpfl_sim.sweeps.breakdown.spec import BreakdownSpec


@dataclass(frozen=True)
class Point:
    """The accuracy with one value and one seed, and that of local training with the same honest clients."""

    index: int
    value: float
    seed: int
    accuracy: float
    local: float

    @property
    def difference(self) -> float:
        """The benefit of collaboration."""
        return self.accuracy - self.local


@dataclass(frozen=True)
class Crossing:
    """The indices of the values between which one seed falls below local training."""

    seed: int
    holds: int | None
    """the last value that holds; None if the first value is already below"""
    below: int | None
    """the first value below; None if the last value holds"""


@dataclass(frozen=True)
class Breakdown:
    """Where each seed breaks down, and statistics over all seeds."""

    spec: BreakdownSpec
    crossings: list[Crossing]
    points: list[Point]

    @property
    def never(self) -> list[int]:
        """The seeds that hold at the end of the range."""
        return [crossing.seed for crossing in self.crossings if crossing.below is None]

    @property
    def always(self) -> list[int]:
        """The seeds that are below local training at the start of the range."""
        return [crossing.seed for crossing in self.crossings if crossing.holds is None]

    @cached_property
    def estimate(self) -> MeanInterval | None:
        """Mean and interval of the first values below, or None if a seed has none inside the range."""
        indices = [crossing.below for crossing in self.crossings]
        if not indices or self.never or self.always:
            return None
        return mean_interval([self.spec.values[index] for index in indices if index is not None])

    @property
    def median(self) -> int | None:
        """The index of the (lower) median of the first values below; None beyond the end of the range."""
        beyond = len(self.spec.values)
        index = median_low([beyond if c.below is None else c.below for c in self.crossings])
        return None if index == beyond else index

    @property
    def width(self) -> float:
        """The largest distance over seeds between the last value that holds and the first value below."""
        values = self.spec.values
        gaps = [
            abs(values[c.below] - values[c.holds])
            for c in self.crossings
            if c.below is not None and c.holds is not None
        ]
        return max(gaps, default=0.0)

    @property
    def without_effect(self) -> bool:
        """Whether both ends of the range gave the same accuracy for every seed."""
        last = len(self.spec.values) - 1
        ends = [{p.seed: p.accuracy for p in self.points if p.index == index} for index in (0, last)]
        return ends[0] == ends[1]


def write_breakdown(breakdown: Breakdown, folder: Path) -> None:
    """Write points.csv, with one row per value and seed that was tried, and breakdown.json, the result."""
    spec, values = breakdown.spec, breakdown.spec.values
    rows = [["value", "seed", "accuracy", "local", "difference"]]
    rows += [[*map(repr, (p.value, p.seed, p.accuracy, p.local, p.difference))] for p in breakdown.points]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "points.csv", "".join(f"{','.join(row)}\n" for row in rows).encode())
    result = {
        "vary": spec.path,
        "from": values[0],
        "to": values[-1],
        "margin": spec.margin,
        "metric": spec.metric,
        "mean": None if breakdown.estimate is None else breakdown.estimate.mean,
        "half_width": None if breakdown.estimate is None else breakdown.estimate.half_width,
        "seeds": {
            str(c.seed): {
                "holds_up_to": None if c.holds is None else values[c.holds],
                "below_from": None if c.below is None else values[c.below],
            }
            for c in breakdown.crossings
        },
    }
    write_atomically(folder / "breakdown.json", (json.dumps(result, indent=2) + "\n").encode())
