"""What a search for a breakdown point varies, and the runs that it consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rdpfl_sim.components.table import suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.records.statistics import HONEST_ACCURACIES
from rdpfl_sim.scenario.paths import set_value
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.breakdown.parameter_range import path_problems, values_between
from rdpfl_sim.sweeps.plan import PlannedRun

METRICS = tuple(HONEST_ACCURACIES)
LOCAL_TRAINING: Mapping[str, object] = {
    "method": {"name": "local"},
    "adversary": [],
    "network": {},
    "timing.wait": {"name": "none"},
    "timing.staleness": {"name": "drop"},
}
"""Local training exchanges no messages, so Byzantine clients and the network have no effect on it."""


@dataclass(frozen=True)
class BreakdownSpec:
    """The parameter that is varied in a scenario, and the criterion for a breakdown."""

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
        raw["execution"].setdefault("threads", 1)  # the runs share the cores
        return raw

    def run(self, index: int, seed: int) -> PlannedRun:
        """Return the run with the value at this index."""
        raw = deepcopy(self._raw)
        raw["seed"] = seed
        set_value(raw, self.path, self.values[index])
        return PlannedRun({self.path: f"{self.values[index]:g}"}, Scenario.from_dict(raw))

    def local_run(self, index: int, seed: int) -> PlannedRun:
        """Return local training in the same world; one run for all values unless the value affects it."""
        raw = self.run(index, seed).scenario.to_dict()
        for path, value in LOCAL_TRAINING.items():
            set_value(raw, path, deepcopy(value))
        return PlannedRun({"method": "local"}, Scenario.from_dict(raw))

    def is_below(self, difference: float) -> bool:
        """Return whether a difference to local training counts as a breakdown."""
        return difference < -self.margin


def make_spec(
    base: Scenario,
    path: str,
    start: float | None,
    end: float | None,
    seeds: Sequence[int],
    tolerance: float | None = None,
    margin: float = 0.0,
    metric: str = METRICS[0],
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
        yield Problem("method.name", "is the method that others are compared with; choose another", "local")
    if metric not in METRICS:
        yield Problem(
            "--metric", f"is not an accuracy of honest clients{suggest(metric, [*METRICS])}", metric
        )
    elif ".global." in metric and not base.evaluation.global_test:
        yield Problem("--metric", "needs evaluation.global_test = true", metric)
