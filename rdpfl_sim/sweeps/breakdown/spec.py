"""The specification of a search for a breakdown point: the parameter, its values, and the runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import ceil, floor, log2
from pathlib import Path
from typing import TypeGuard

from rdpfl_sim.components.suggestions import suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.records.statistics import HONEST_ACCURACIES
from rdpfl_sim.rounding import round_down, round_up
from rdpfl_sim.scenario.overrides import parse_override, reject_overrides
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.scenario.toml_file import get_value, leaves, set_value
from rdpfl_sim.sweeps.plan import PlannedRun

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
    "seed": "--seeds is used instead",
    "output.folder": "runs are written into the folder of --output",
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
            "--metric", f"is not an accuracy of honest clients{suggest(metric, HONEST_ACCURACIES)}", metric
        )
    elif ".global." in metric and not base.evaluation.global_test:
        yield Problem("--metric", "needs evaluation.global_test = true", metric)


def path_problems(base: Scenario, path: str) -> Iterator[Problem]:
    """Yield the reasons why a path cannot be varied."""
    raw = base.to_dict()
    del raw["seed"]  # every value is tested with the same seeds
    if path.startswith("adversary") and not any(group.attacks for group in base.adversary):
        yield Problem(
            "adversary.attack", "no attack configured: set one, for instance --set adversary.attack=sign_flip"
        )
    elif not _is_number(get_value(raw, path)):
        section = path.partition(".")[0].partition("[")[0]
        numbers = [key for key, value in leaves(raw).items() if _is_number(value)]
        similar = [key for key in numbers if key.startswith((f"{section}.", f"{section}["))] or numbers
        hint = suggest(path, similar)
        yield Problem("--vary", f"the scenario has no such number (--set can add it){hint}", path)


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
                raise ScenarioError([Problem(path, "has no effect: --vary replaces it", found[path])])


def _has_number(file: Path, overrides: Sequence[str], path: str) -> bool:
    try:
        return _is_number(get_value(Scenario.load(file, overrides).to_dict(), path))
    except ScenarioError:
        return False


def _has_fixed_range(path: str) -> bool:
    """Return whether the default range of a path does not depend on its value."""
    key = path.rpartition(".")[2]
    return bool(_BYZANTINE_FRACTION.fullmatch(path)) or key in ("probability", "duplication")


def default_range(base: Scenario, path: str) -> tuple[float | None, float | None]:
    """Return 0 to 0.5 for attacker fractions, 0 to 0.9 for probabilities, otherwise value to 10 x value."""
    key, value = path.rpartition(".")[2], get_value(base.to_dict(), path)
    if _has_fixed_range(path):
        return 0.0, 0.5 if _BYZANTINE_FRACTION.fullmatch(path) else 0.9
    return (value, 10 * value) if value > 0 and key != "fraction" else (None, None)


def values_between(
    base: Scenario,
    path: str,
    start: float | None = None,
    end: float | None = None,
    tolerance: float | None = None,
) -> Sequence[float]:
    """Return the distinct values from start to end.

    Attacker fractions correspond to whole numbers of clients, and integers stay integers. Any other range is
    divided into 2^n intervals no longer than the tolerance.
    """
    default_start, default_end = default_range(base, path)
    start, end = default_start if start is None else start, default_end if end is None else end
    if start is None or end is None:
        raise ScenarioError([Problem("--vary", "needs --from and --to", path)])
    found = _ascending_values(base, path, min(start, end), max(start, end), tolerance)
    if len(found) < 2:
        message = f"the range contains fewer than two values of {path}"
        raise ScenarioError([Problem("--from, --to", message, (start, end))])
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
        raise ScenarioError([Problem("--tolerance", "is too small for this range", tolerance)])
    return [float(f"{low + (high - low) * i / num_intervals:.12g}") for i in range(num_intervals + 1)]
