"""Find the first value at which honest clients fall below local training, by bisection (`breakdown`).

Every seed is bisected separately, on a list of values that all seeds share. Bisection assumes that the
difference from local training changes sign once between the two ends of the range. Accuracy is noisy, so the
result includes every tested value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor, log2
from pathlib import Path
from statistics import median_low
from typing import TypeGuard

from rdpfl_sim.components.options import round_down, round_up
from rdpfl_sim.components.schema import suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.files import JsonObject, write_atomically
from rdpfl_sim.intervals import MeanInterval, mean_interval
from rdpfl_sim.records.metrics import HONEST_ACCURACIES, accuracy, headline_moment
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.summary import metric_name
from rdpfl_sim.scenario.overrides import parse_override, reject_overrides
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.runner import folder_of, read_summary
from rdpfl_sim.toml import get_value, leaves, set_value

LOCAL_TRAINING: Mapping[str, object] = {
    "method": {"name": "local"},
    "adversary": [],
    "network": {},
    "timing.wait": {"name": "none"},
    "timing.staleness": {"name": "drop"},
}
"""Neutral values for sections that have no effect on local training, which exchanges no messages."""

NUM_INTERVALS = 32
"""Default number of intervals into which a range is divided."""

MAX_VALUES = 1_000_000

RESERVED = {
    "seed": "`seeds` is used instead",
    "output.folder": "runs are written into the folder of `output`",
}
"""Keys that are set by other arguments, with the reason why an override has no effect."""

_BYZANTINE_FRACTION = re.compile(r"adversary(\[\d+\])?\.fraction")


@dataclass(frozen=True)
class BreakdownSpec:
    """The parameter that is varied in a scenario, and the criterion for a breakdown."""

    base: Scenario
    path: str
    values: Sequence[float]
    seeds: list[int]
    tolerance: float = 0.0
    margin: float = 0.0
    metric: str = HONEST_ACCURACIES[0]

    @property
    def moment(self) -> str:
        """The moment at which accuracies are measured."""
        return headline_moment(self.base.to_dict())

    @property
    def metric_label(self) -> str:
        """The name of the metric, with the moment of its measurement."""
        return metric_name(self.metric, [self.moment]).label

    def run(self, index: int, seed: int) -> PlannedRun:
        """Return the run with the value at this index."""
        raw = self.base.to_dict()
        raw["seed"] = seed
        set_value(raw, self.path, self.values[index])
        return PlannedRun({self.path: f"{self.values[index]:g}"}, Scenario.from_dict(raw))

    def local_run(self, index: int, seed: int) -> PlannedRun:
        """Return the run of local training. All values share one run unless the value affects it."""
        raw = self.run(index, seed).scenario.to_dict()
        for path, value in LOCAL_TRAINING.items():
            set_value(raw, path, deepcopy(value))
        return PlannedRun({"method": "local"}, Scenario.from_dict(raw))

    def is_below(self, difference: float) -> bool:
        """Return whether a difference from local training counts as a breakdown."""
        return difference < -self.margin


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
    points: dict[tuple[int, int], Point] = field(default_factory=dict)
    """Points by seed and index."""
    failed: set[int] = field(default_factory=set)
    """Seeds with a failed run."""

    def next_runs(self) -> list[PlannedRun]:
        """Return the next runs: at both ends of the range, then in the middle of each seed's interval."""
        runs = [run for seed, index in self.next_points() for run in self._runs(index, seed)]
        return [*{run.key: run for run in runs}.values()]

    def num_later_runs(self) -> int:
        """Return the maximum number of values to test after the next round, for all seeds together."""
        total = 0
        for seed in {seed for seed, _ in self.next_points()}:
            crossing = self._crossing(seed)
            if crossing is None:
                total += ceil(log2(len(self.spec.values) - 1))
            else:
                total += ceil(log2((crossing.below or 0) - (crossing.holds or 0))) - 1
        return total

    def read_results(self, output: Path) -> None:
        """Read the results of this round; the search for a seed stops if one of its runs failed."""
        for seed, index in self.next_points():
            point = self._read_point(index, seed, output)
            if point is None:
                self.failed.add(seed)
            else:
                self.points[seed, index] = point

    def result(self) -> Breakdown:
        """Return the crossings of all seeds without failed runs, and all points."""
        crossings = [self._crossing(seed) for seed in self.spec.seeds if seed not in self.failed]
        points = sorted(self.points.values(), key=lambda point: (point.index, point.seed))
        return Breakdown(self.spec, [crossing for crossing in crossings if crossing is not None], points)

    def next_points(self) -> list[tuple[int, int]]:
        """Return the seeds and indices to test next."""
        return [
            (seed, index)
            for seed in self.spec.seeds
            if seed not in self.failed
            for index in self._next_indices(self._crossing(seed))
        ]

    def _next_indices(self, crossing: Crossing | None) -> Sequence[int]:
        values = self.spec.values
        if crossing is None:
            return 0, len(values) - 1
        low, high = crossing.holds, crossing.below
        if low is None or high is None or high - low == 1:
            return ()
        return () if abs(values[high] - values[low]) <= self.spec.tolerance else ((low + high) // 2,)

    def _crossing(self, seed: int) -> Crossing | None:
        """Return the crossing of a seed, or None before the ends of the range are tested."""
        found = {index: point for (other, index), point in self.points.items() if other == seed}
        if not found:
            return None
        below = [index for index, point in found.items() if self.spec.is_below(point.difference)]
        if 0 in below:
            return Crossing(seed, None, 0)
        holds = max(index for index in found if index not in below)
        return Crossing(seed, holds, min(below) if len(self.spec.values) - 1 in below else None)

    def _runs(self, index: int, seed: int) -> list[PlannedRun]:
        return [self.spec.local_run(index, seed), self.spec.run(index, seed)]

    def _read_point(self, index: int, seed: int, output: Path) -> Point | None:
        local_run, run = self._runs(index, seed)
        summary = read_summary(run, output)
        if summary is None or read_summary(local_run, output) is None:
            return None
        local = local_accuracy(folder_of(local_run, output), summary["byzantine"], self.spec.moment)
        metric, value = self.spec.metric, self.spec.values[index]
        return Point(index, value, seed, get_value(summary, metric), get_value(local, metric))


def local_accuracy(folder: Path, byzantine: Sequence[int], moment: str) -> JsonObject:
    """Return the accuracy section of a local-training run as if these clients were Byzantine.

    Some shards are harder than others, so both means must be over the same honest clients.
    """
    latest = {row["client"]: row for row in RunReader(folder).read_metrics()}
    rows = [row | {"byzantine": client in byzantine} for client, row in sorted(latest.items())]
    return {"accuracy": accuracy(rows, moment)}


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


def make_spec(
    base: Scenario,
    path: str,
    start: float | None,
    end: float | None,
    seeds: Sequence[int],
    tolerance: float | None = None,
    margin: float = 0.0,
    metric: str = HONEST_ACCURACIES[0],
) -> BreakdownSpec:
    """Return a spec whose runs are all valid, or raise a `ScenarioError` that lists the problems."""
    problems = [*_problems(base, metric), *path_problems(base, path)]
    if problems:
        raise ScenarioError(problems)
    values = values_between(base, path, start, end, tolerance)
    spec = BreakdownSpec(base, path, values, list(seeds), tolerance or 0.0, margin, metric)
    for index in (0, len(values) - 1):
        spec.local_run(index, seeds[0])  # raises if the scenario is invalid at an end of the range
    return spec


def _problems(base: Scenario, metric: str) -> Iterator[Problem]:
    if base.method.name == "local":
        yield Problem("method.name", "is the baseline; choose a different method", "local")
    if metric not in HONEST_ACCURACIES:
        yield Problem(
            "`metric`", f"is not an accuracy of honest clients{suggest(metric, HONEST_ACCURACIES)}", metric
        )
    elif ".global." in metric and not base.evaluation.global_test:
        yield Problem("`metric`", "needs evaluation.global_test = true", metric)
    elif ".validation." in metric and base.evaluation.validation_fraction == 0:
        yield Problem("`metric`", "needs evaluation.validation_fraction above 0", metric)


def path_problems(base: Scenario, path: str) -> Iterator[Problem]:
    """Yield the reasons why a path cannot be varied."""
    raw = base.to_dict()
    del raw["seed"]  # every value is tested with the same seeds
    if path.startswith("adversary") and not any(group.attacks for group in base.adversary):
        yield Problem(
            "adversary.attack",
            "no attack configured: set one, for instance with `overrides` adversary.attack=sign_flip",
        )
    elif not _is_number(get_value(raw, path)):
        section = path.partition(".")[0].partition("[")[0]
        numbers = [key for key, value in leaves(raw).items() if _is_number(value)]
        similar = [key for key in numbers if key.startswith((f"{section}.", f"{section}["))] or numbers
        hint = suggest(path, similar)
        yield Problem("`path`", f"the scenario has no such number (`overrides` can add it){hint}", path)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def reject_lost_overrides(
    file: Path, overrides: Sequence[str], path: str, start: float | None, end: float | None
) -> None:
    """Raise a `ScenarioError` if an override has no effect because its path is varied.

    An override has an effect if the range depends on it, or if it adds the number to the scenario.
    """
    reject_overrides(dict(map(parse_override, overrides)), RESERVED)
    if (start is not None and end is not None) or _has_fixed_range(path):
        for index, override in enumerate(overrides):
            given, value = parse_override(override)
            found = leaves(value, (given,))
            others = [*overrides[:index], *overrides[index + 1 :]]
            if path in found and _has_number(file, others, path):
                raise ScenarioError([Problem(path, "has no effect: `path` replaces it", found[path])])


def _has_number(file: Path, overrides: Sequence[str], path: str) -> bool:
    try:
        return _is_number(get_value(Scenario.load(file, overrides).to_dict(), path))
    except ScenarioError:
        return False


def _has_fixed_range(path: str) -> bool:
    """Return whether the default range of a path does not depend on its value."""
    key = path.rpartition(".")[2]
    return bool(_BYZANTINE_FRACTION.fullmatch(path)) or key in ("probability", "duplication")


def values_between(
    base: Scenario,
    path: str,
    start: float | None = None,
    end: float | None = None,
    tolerance: float | None = None,
) -> Sequence[float]:
    """Return the distinct values from start to end.

    The default range is 0 to 0.5 for attacker fractions, 0 to 0.9 for probabilities, and otherwise from the
    value in the scenario to its tenfold. Attacker fractions correspond to whole numbers of clients, and
    integers stay integers. Any other range is divided into 2^n intervals no longer than the tolerance.
    """
    value = get_value(base.to_dict(), path)
    low: float | None = None
    high: float | None = None
    if _has_fixed_range(path):
        low, high = 0.0, 0.5 if _BYZANTINE_FRACTION.fullmatch(path) else 0.9
    elif value > 0 and path.rpartition(".")[2] != "fraction":
        low, high = value, 10 * value
    start, end = low if start is None else start, high if end is None else end
    if start is None or end is None:
        raise ScenarioError([Problem("`path`", "needs `start` and `end`", path)])
    found = _ascending_values(base, path, min(start, end), max(start, end), tolerance)
    if len(found) < 2:
        message = f"the range contains fewer than two values of {path}"
        raise ScenarioError([Problem("`start`, `end`", message, (start, end))])
    return found if start < end else found[::-1]


def _ascending_values(
    base: Scenario, path: str, low: float, high: float, tolerance: float | None
) -> Sequence[float]:
    num_clients = base.clients.count
    if _BYZANTINE_FRACTION.fullmatch(path):
        counts = range(round_up(low * num_clients), round_down(high * num_clients) + 1)
        return [num / num_clients for num in counts]
    if isinstance(get_value(base.to_dict(), path), int):
        return range(ceil(low), floor(high) + 1)
    if low == high:
        return [low]
    tolerance = tolerance or (high - low) / NUM_INTERVALS
    num_intervals = 2 ** max(1, round_up(log2((high - low) / tolerance)))
    if num_intervals > MAX_VALUES:
        raise ScenarioError([Problem("`tolerance`", "is too small for this range", tolerance)])
    return [float(f"{low + (high - low) * i / num_intervals:.12g}") for i in range(num_intervals + 1)]
