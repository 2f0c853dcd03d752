"""Find the first value at which honest clients fall below local training, by bisection.

Every seed is bisected separately, on a list of values that all seeds share. Bisection assumes that the
difference from local training changes sign once between the two ends of the range. Accuracy is noisy, so the
result includes every tested value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, log2
from pathlib import Path
from statistics import median_low

from rdpfl_sim.intervals import MeanInterval, mean_interval
from rdpfl_sim.records.json_file import JsonObject
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.run_folder import write_atomically
from rdpfl_sim.records.statistics import accuracy
from rdpfl_sim.sweeps.breakdown.spec import BreakdownSpec
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.results import flatten, folder_of, read_summary


@dataclass(frozen=True)
class Point:
    """Accuracy for one value and seed, and accuracy of local training with the same honest clients."""

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
    """Index of the last value not below local training; None if the first value is below it."""
    below: int | None
    """Index of the first value below local training; None if the last value is not below it."""


@dataclass(frozen=True)
class Breakdown:
    """The breakdown point of each seed, and statistics over all seeds."""

    spec: BreakdownSpec
    crossings: list[Crossing]
    points: list[Point]

    @property
    def never(self) -> list[int]:
        """The seeds that are not below local training at the end of the range."""
        return [crossing.seed for crossing in self.crossings if crossing.below is None]

    @property
    def always(self) -> list[int]:
        """The seeds that are below local training at the start of the range."""
        return [crossing.seed for crossing in self.crossings if crossing.holds is None]

    @cached_property
    def estimate(self) -> MeanInterval | None:
        """Mean and interval of the breakdown points, or None if one of them is outside the range."""
        indices = [crossing.below for crossing in self.crossings]
        if not indices or self.never or self.always:
            return None
        return mean_interval([self.spec.values[index] for index in indices if index is not None])

    @property
    def median(self) -> int | None:
        """The index of the lower median of the breakdown points; None beyond the end of the range."""
        beyond = len(self.spec.values)
        index = median_low([beyond if c.below is None else c.below for c in self.crossings])
        return None if index == beyond else index

    @property
    def width(self) -> float:
        """The largest distance from a seed's last value not below to its first value below."""
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


@dataclass
class Bisection:
    """A bisection for all seeds together, with the points found so far."""

    spec: BreakdownSpec
    output: Path
    points: dict[tuple[int, int], Point] = field(default_factory=dict)
    """Points by seed and index."""
    failed: set[int] = field(default_factory=set)
    """Seeds with a failed run."""
    requested: set[str] = field(default_factory=set)
    """Keys of the runs of earlier steps."""

    def next_runs(self) -> list[PlannedRun]:
        """Return the next runs: at both ends of the range, then in the middle of each seed's interval."""
        runs = [run for seed, index in self._next_points() for run in self._runs(index, seed)]
        return [run for run in {run.key: run for run in runs}.values() if run.key not in self.requested]

    def max_later_points(self) -> int:
        """Return the maximum number of values to test after the next step."""
        last = len(self.spec.values) - 1
        total = 0
        for seed in {seed for seed, _ in self._next_points()}:
            found = self._points_of(seed)
            if 0 in found and last in found:
                crossing = self._crossing(seed, found)
                total += ceil(log2((crossing.below or 0) - (crossing.holds or 0))) - 1
            else:
                total += ceil(log2(last))
        return total

    def read_results(self) -> None:
        """Read the results of this step's runs; the search for a seed stops if one of its runs failed."""
        for seed, index in list(self._next_points()):
            self.requested.update(run.key for run in self._runs(index, seed))
            point = self._read_point(index, seed)
            if point is None:
                self.failed.add(seed)
            else:
                self.points[seed, index] = point

    def result(self) -> Breakdown:
        """Return the crossings of all seeds without failed runs, and all points."""
        crossings = [
            self._crossing(seed, found)
            for seed in self.spec.seeds
            if seed not in self.failed and len(found := self._points_of(seed)) >= 2
        ]
        points = sorted(self.points.values(), key=lambda point: (point.index, point.seed))
        return Breakdown(self.spec, crossings, points)

    def _next_points(self) -> Iterator[tuple[int, int]]:
        """Yield the seeds and indices to test next."""
        last = len(self.spec.values) - 1
        for seed in self.spec.seeds:
            found = self._points_of(seed)
            ends = [index for index in (0, last) if index not in found]
            indices = ends or self._middle(self._crossing(seed, found))
            yield from ((seed, index) for index in indices if seed not in self.failed)

    def _middle(self, crossing: Crossing) -> list[int]:
        low, high = crossing.holds, crossing.below
        if low is None or high is None or high - low == 1:
            return []
        width = abs(self.spec.values[high] - self.spec.values[low])
        return [] if width <= self.spec.tolerance else [(low + high) // 2]

    def _crossing(self, seed: int, found: Mapping[int, Point]) -> Crossing:
        below = [index for index, point in found.items() if self.spec.is_below(point.difference)]
        holds = [index for index in found if index not in below]
        last = len(self.spec.values) - 1
        if 0 in below:
            return Crossing(seed, None, 0)
        return Crossing(seed, max(holds), min(below) if last in below else None)

    def _points_of(self, seed: int) -> dict[int, Point]:
        return {index: point for (other, index), point in self.points.items() if other == seed}

    def _runs(self, index: int, seed: int) -> list[PlannedRun]:
        return [self.spec.local_run(index, seed), self.spec.run(index, seed)]

    def _read_point(self, index: int, seed: int) -> Point | None:
        local_run, run = self._runs(index, seed)
        summary = read_summary(run, self.output)
        if summary is None or read_summary(local_run, self.output) is None:
            return None
        local = local_accuracy(folder_of(local_run, self.output), summary["byzantine"])
        metric, value = self.spec.metric, self.spec.values[index]
        return Point(index, value, seed, float(flatten(summary)[metric]), float(flatten(local)[metric]))


def local_accuracy(folder: Path, byzantine: Sequence[int]) -> JsonObject:
    """Return the accuracy section of a local-training run as if these clients were Byzantine.

    Some shards are harder than others, so both means must be over the same honest clients.
    """
    latest = {row["client"]: row for row in RunReader(folder).read_metrics()}
    rows = [row | {"byzantine": client in byzantine} for client, row in sorted(latest.items())]
    return {"accuracy": accuracy(rows)}


def write_breakdown(breakdown: Breakdown, folder: Path) -> None:
    """Write points.csv, with one row per tested value and seed, and breakdown.json with the result."""
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
