"""Where a scenario breaks down: bisection to the value from which honest clients had better train alone.

Every seed is bisected by itself, on a list of values that all seeds share. Bisection assumes that the
difference to local training changes its sign once between the two ends; accuracy is noisy, so every value
that was tried is part of the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, log2
from pathlib import Path
from statistics import median_low
from typing import Any

from rdpfl_sim.components.table import suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.intervals import MeanInterval, mean_interval
from rdpfl_sim.records import statistics as summaries
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.run_folder import write_atomically
from rdpfl_sim.scenario.paths import set_value
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps import parameter_range as variation
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.results import flat
from rdpfl_sim.sweeps.runner import folder_of, summary_of

METRICS = tuple(
    f"accuracy.honest.{test}.{over}" for test in ("personal", "global") for over in ("mean", "worst", "p10")
)
LOCAL: dict[str, Any] = {
    "method": {"name": "local"},
    "adversary": [],
    "network": {},
    "timing.wait": {"name": "none"},
    "timing.staleness": {"name": "drop"},
}
"""Local training exchanges nothing: who lies, and what happens to messages, cannot matter."""


@dataclass(frozen=True)
class Point:
    """A scenario with one value and one seed: its accuracy, and that of the same clients trained locally."""

    place: int
    value: float
    seed: int
    accuracy: float
    local: float

    @property
    def difference(self) -> float:
        """What collaboration is worth."""
        return self.accuracy - self.local


@dataclass(frozen=True)
class Crossing:
    """Between which places one seed breaks down."""

    seed: int
    holds: int | None
    """the last place that holds; None if the first is below local training already"""
    below: int | None
    """the first place below; None if the last one holds"""


@dataclass(frozen=True)
class BreakdownSpec:
    """What is varied, in which scenario, and when it counts as broken down."""

    base: Scenario
    path: str
    values: Sequence[float]
    seeds: list[int]
    tolerance: float = 0.0
    margin: float = 0.0
    metric: str = METRICS[0]

    @cached_property
    def _raw(self) -> dict[str, Any]:
        raw = self.base.to_dict()
        raw["execution"].setdefault("threads", 1)  # the runs share the cores among them
        return raw

    def run(self, place: int, seed: int) -> PlannedRun:
        """The run with the value at this place."""
        raw = deepcopy(self._raw)
        raw["seed"] = seed
        set_value(raw, self.path, self.values[place])
        return PlannedRun({self.path: f"{self.values[place]:g}"}, Scenario.from_dict(raw))

    def local_run(self, place: int, seed: int) -> PlannedRun:
        """Local training in the same world; it is another for each value only if the value matters to it."""
        raw = self.run(place, seed).scenario.to_dict()
        for path, value in LOCAL.items():
            set_value(raw, path, deepcopy(value))
        return PlannedRun({"method": "local"}, Scenario.from_dict(raw))

    def is_below(self, difference: float) -> bool:
        """Whether honest clients had better train alone."""
        return difference < -self.margin


def ask(
    base: Scenario,
    path: str,
    start: float | None,
    end: float | None,
    seeds: Sequence[int],
    tolerance: float | None = None,
    margin: float = 0.0,
    metric: str = METRICS[0],
) -> BreakdownSpec:
    """The question, or a `ScenarioError` that tells what is wrong with it."""
    problems = [*_misfits(base, metric), *variation.problems(base, path)]
    if problems:
        raise ScenarioError(problems)
    values = variation.values(base, path, start, end, tolerance)
    spec = BreakdownSpec(base, path, values, list(seeds), tolerance or 0.0, margin, metric)
    for place in (0, len(values) - 1):
        spec.local_run(place, seeds[0])  # what cannot be run is told before anything is
    return spec


def _misfits(base: Scenario, metric: str) -> Iterator[Problem]:
    if base.method.name == "local":
        yield Problem("method.name", "is what others are compared with; choose another", "local")
    if metric not in METRICS:
        yield Problem(
            "--metric", f"is not an accuracy of honest clients{suggest(metric, [*METRICS])}", metric
        )
    elif ".global." in metric and not base.evaluation.global_test:
        yield Problem("--metric", "needs evaluation.global_test = true", metric)


@dataclass
class Search:
    """The bisection of all seeds at once, and what it has found so far."""

    spec: BreakdownSpec
    output: Path
    points: dict[tuple[int, int], Point] = field(default_factory=dict)
    """by seed and place"""
    failed: set[int] = field(default_factory=set)
    """seeds of which a run has failed"""
    known: set[str] = field(default_factory=set)
    """keys of the runs that were wanted before"""

    def wanted(self) -> list[PlannedRun]:
        """The runs that tell more: both ends of the range, then the middle of what is left to each seed."""
        runs = [run for seed, place in self._open() for run in self._runs(place, seed)]
        return [run for run in {run.key: run for run in runs}.values() if run.key not in self.known]

    def num_later(self) -> int:
        """How many values may be tried after those that are wanted now."""
        last = len(self.spec.values) - 1
        total = 0
        for seed in {seed for seed, _ in self._open()}:
            found = self._of(seed)
            if 0 in found and last in found:
                crossing = self._crossing(seed, found)
                total += ceil(log2((crossing.below or 0) - (crossing.holds or 0))) - 1
            else:
                total += ceil(log2(last))
        return total

    def learn(self) -> None:
        """Read what the runs that were wanted have found; a seed with a failed run is given up."""
        for seed, place in list(self._open()):
            self.known.update(run.key for run in self._runs(place, seed))
            point = self._read(place, seed)
            if point is None:
                self.failed.add(seed)
            else:
                self.points[seed, place] = point

    def crossings(self) -> list[Crossing]:
        """Where each seed breaks down, as far as it is known."""
        return [
            self._crossing(seed, found)
            for seed in self.spec.seeds
            if seed not in self.failed and len(found := self._of(seed)) >= 2
        ]

    def _open(self) -> Iterator[tuple[int, int]]:
        """The seeds and places to look at next."""
        last = len(self.spec.values) - 1
        for seed in self.spec.seeds:
            found = self._of(seed)
            ends = [place for place in (0, last) if place not in found]
            places = ends or self._middle(self._crossing(seed, found))
            yield from ((seed, place) for place in places if seed not in self.failed)

    def _middle(self, crossing: Crossing) -> list[int]:
        low, high = crossing.holds, crossing.below
        if low is None or high is None or high - low == 1:
            return []
        width = abs(self.spec.values[high] - self.spec.values[low])
        return [] if width <= self.spec.tolerance else [(low + high) // 2]

    def _crossing(self, seed: int, found: Mapping[int, Point]) -> Crossing:
        below = [place for place, point in found.items() if self.spec.is_below(point.difference)]
        holds = [place for place in found if place not in below]
        last = len(self.spec.values) - 1
        if 0 in below:
            return Crossing(seed, None, 0)
        return Crossing(seed, max(holds), min(below) if last in below else None)

    def _of(self, seed: int) -> dict[int, Point]:
        return {place: point for (own, place), point in self.points.items() if own == seed}

    def _runs(self, place: int, seed: int) -> list[PlannedRun]:
        return [self.spec.local_run(place, seed), self.spec.run(place, seed)]

    def _read(self, place: int, seed: int) -> Point | None:
        local, run = self._runs(place, seed)
        summary = summary_of(run, self.output)
        if summary is None or summary_of(local, self.output) is None:
            return None
        alone = local_accuracy(folder_of(local, self.output), summary["byzantine"])
        metric, value = self.spec.metric, self.spec.values[place]
        return Point(place, value, seed, float(flat(summary)[metric]), float(flat(alone)[metric]))


def local_accuracy(folder: Path, byzantine: Sequence[int]) -> dict[str, Any]:
    """What a run of local training would have in its summary if these clients were Byzantine.

    Shards are unequally hard: a mean over other clients than those that are honest would be no comparison.
    """
    latest = {row["client"]: row for row in RunReader(folder).read_metrics()}
    rows = [row | {"byzantine": client in byzantine} for client, row in sorted(latest.items())]
    return {"accuracy": summaries.accuracy(rows)}


@dataclass(frozen=True)
class Breakdown:
    """The answer: where each seed breaks down, and what can be said about all of them."""

    spec: BreakdownSpec
    crossings: list[Crossing]
    points: list[Point]

    @property
    def never(self) -> list[int]:
        """The seeds that hold at the end of the range."""
        return [crossing.seed for crossing in self.crossings if crossing.below is None]

    @property
    def always(self) -> list[int]:
        """The seeds that are below local training already at its beginning."""
        return [crossing.seed for crossing in self.crossings if crossing.holds is None]

    @cached_property
    def estimate(self) -> MeanInterval | None:
        """Mean and interval of the first values below, unless one of them lies outside the range."""
        found = [crossing.below for crossing in self.crossings]
        if not found or self.never or self.always:
            return None
        return mean_interval([self.spec.values[place] for place in found if place is not None])

    @property
    def median(self) -> int | None:
        """The place of the (lower) median of the first values below, None beyond the end of the range."""
        beyond = len(self.spec.values)
        places = [beyond if c.below is None else c.below for c in self.crossings]
        place = median_low(places)
        return None if place == beyond else place

    @property
    def width(self) -> float:
        """The largest distance between the last value that holds and the first below, over seeds."""
        values = self.spec.values
        gaps = [
            abs(values[c.below] - values[c.holds])
            for c in self.crossings
            if c.below is not None and c.holds is not None
        ]
        return max(gaps, default=0.0)

    @property
    def without_effect(self) -> bool:
        """Whether both ends of the range gave the same accuracies to every seed."""
        last = len(self.spec.values) - 1
        ends = [{p.seed: p.accuracy for p in self.points if p.place == place} for place in (0, last)]
        return ends[0] == ends[1]


def conclude(search: Search) -> Breakdown:
    """What the search has found."""
    points = sorted(search.points.values(), key=lambda point: (point.place, point.seed))
    return Breakdown(search.spec, search.crossings(), points)


def write(breakdown: Breakdown, folder: Path) -> None:
    """Write points.csv, a row for every value and seed that was tried, and breakdown.json, the answer."""
    spec, values = breakdown.spec, breakdown.spec.values
    rows = [["value", "seed", "accuracy", "local", "difference"]]
    rows += [[*map(repr, (p.value, p.seed, p.accuracy, p.local, p.difference))] for p in breakdown.points]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "points.csv", "".join(f"{','.join(row)}\n" for row in rows).encode())
    answer = {
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
    write_atomically(folder / "breakdown.json", (json.dumps(answer, indent=2) + "\n").encode())
