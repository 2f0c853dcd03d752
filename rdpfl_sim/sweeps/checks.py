"""Checks before the first run: what many runs need is missed once, not by every run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from rdpfl_sim.components.table import suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.records.evaluation_log import TARGETS
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.experiment import load_data
from rdpfl_sim.simulation.simulation import simulate
from rdpfl_sim.sweeps.results import flat

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun, SweepSpec

EVERYTHING = {
    "rounds": 1,
    "clients": {"count": 5},
    "data": {"name": "synthetic", "shape": [2], "num_classes": 2, "num_train": 30, "num_test": 12},
    "partition": "iid",
    "model": "softmax",
    "adversary": {"ids": [0], "attack": "zero"},
    "evaluation": {"global_test": True, "theory": True},
}
"""A tiny scenario whose summary.json has all its sections."""
_NUMBER = re.compile(r"\.-?\d+(?=\.|$)")


def check_data(runs: Iterable[PlannedRun]) -> None:
    """Load each data set of these runs once; a `ScenarioError` names those that cannot be loaded."""
    problems: dict[str, Problem] = {}
    for scenario in {repr(run.scenario.data): run.scenario for run in runs}.values():
        try:
            load_data(scenario)
        except ScenarioError as error:
            problems |= {str(problem): problem for problem in error.problems}
    if problems:
        raise ScenarioError(list(problems.values()))


def check_metrics(sweep: SweepSpec) -> None:
    """Raise a `ScenarioError` that names the metrics of tables which no summary.json has."""
    problems = [
        problem
        for place, layout in enumerate(sweep.table)
        for name, path in layout.metrics.items()
        for problem in _unknown(path, f"table[{place}].metrics.{name}")
    ]
    if problems:
        raise ScenarioError(problems)


def _unknown(path: str, where: str) -> Iterator[Problem]:
    known = _numbers()
    if path in known or _NUMBER.sub(".N", path) in known:
        return
    alike = [other for other in known if _group(other) == _group(path)]
    allowed = alike or list(dict.fromkeys(map(_group, known)))
    yield Problem(where, f"is not the path of a number in summary.json{suggest(path, allowed)}", path)


def _group(path: str) -> str:
    return path.partition(".")[0]


@cache
def _numbers() -> list[str]:
    """Return the paths of all numbers in summary.json; N stands for a client, an age or a distance."""
    summary = simulate(Scenario.from_dict(EVERYTHING)).summary
    summary["time_to_accuracy_s"] = {}  # has only what was reached
    numbers = (path for path, value in flat(summary).items() if isinstance(value, int | float))
    found = dict.fromkeys(_NUMBER.sub(".N", path) for path in numbers)
    return [*found, *(f"time_to_accuracy_s.{target}" for target in TARGETS)]
