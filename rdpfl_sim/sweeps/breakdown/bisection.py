"""Bisection to the first value at which honest clients fall below local training.

Every seed is bisected separately, on a list of values that all seeds share. Bisection assumes that the
difference to local training changes its sign once between the two ends of the range. Accuracy is noisy, so
the result includes every value that was tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from pathlib import Path
from typing import Any

from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.statistics import accuracy
from rdpfl_sim.sweeps.breakdown.result import Breakdown, Crossing, Point
from rdpfl_sim.sweeps.breakdown.spec import BreakdownSpec
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.summaries import flatten, folder_of, read_summary


@dataclass
class Bisection:
    """The bisection of all seeds at once, with the points found so far."""

    spec: BreakdownSpec
    output: Path
    points: dict[tuple[int, int], Point] = field(default_factory=dict)
    """by seed and index"""
    failed: set[int] = field(default_factory=set)
    """seeds with a failed run"""
    requested: set[str] = field(default_factory=set)
    """keys of the runs of earlier steps"""

    def next_runs(self) -> list[PlannedRun]:
        """Return the next runs: at both ends of the range, then in the middle of each seed's interval."""
        runs = [run for seed, index in self._next_points() for run in self._runs(index, seed)]
        return [run for run in {run.key: run for run in runs}.values() if run.key not in self.requested]

    def max_later_points(self) -> int:
        """Return how many values may have to be tried after the next step."""
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
        """Read the results of the runs of this step; a seed with a failed run is not searched further."""
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
        """Yield the seeds and indices to try next."""
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


def local_accuracy(folder: Path, byzantine: Sequence[int]) -> dict[str, Any]:
    """Return the accuracy section of a local-training run as if these clients were Byzantine.

    Some shards are harder than others, so both means must be over the same honest clients.
    """
    latest = {row["client"]: row for row in RunReader(folder).read_metrics()}
    rows = [row | {"byzantine": client in byzantine} for client, row in sorted(latest.items())]
    return {"accuracy": accuracy(rows)}
