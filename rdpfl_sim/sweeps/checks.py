"""Check the data sets and the metrics of a sweep once, before the first run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from rdpfl_sim.components.suggestions import suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.records.evaluation_log import TARGETS
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.simulation.experiment import load_data
from rdpfl_sim.simulation.simulation import simulate
from rdpfl_sim.sweeps.results import flatten

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun
    from rdpfl_sim.sweeps.spec import SweepSpec

EVERYTHING = {
    "rounds": 1,
    "clients": {"count": 5},
    "data": {"name": "synthetic", "shape": [2], "num_classes": 2, "num_train": 30, "num_test": 12},
    "partition": "iid",
    "model": "softmax",
    "adversary": {"ids": [0], "attack": "zero"},
    "evaluation": {"global_test": True, "theory": True},
}
"""A tiny scenario whose summary.json has every section."""
_NUMBER = re.compile(r"\.-?\d+(?=\.|$)")


def check_data(runs: Iterable[PlannedRun]) -> None:
    """Load each data set of these runs once; raise a `ScenarioError` if some cannot be loaded."""
    problems: dict[str, Problem] = {}
    for scenario in {repr(run.scenario.data): run.scenario for run in runs}.values():
        try:
            load_data(scenario)
        except ScenarioError as error:
            problems |= {str(problem): problem for problem in error.problems}
    if problems:
        raise ScenarioError(list(problems.values()))


def check_metrics(sweep: SweepSpec) -> None:
    """Raise a `ScenarioError` if a table uses a metric that is not in summary.json."""
    problems = [
        problem
        for index, layout in enumerate(sweep.table)
        for name, path in layout.metrics.items()
        for problem in _metric_problems(path, f"table[{index}].metrics.{name}")
    ]
    if problems:
        raise ScenarioError(problems)


def _metric_problems(path: str, where: str) -> Iterator[Problem]:
    known = known_metrics()
    if path in known or _NUMBER.sub(".N", path) in known:
        return
    same_section = [other for other in known if _section(other) == _section(path)]
    allowed = same_section or list(dict.fromkeys(map(_section, known)))
    yield Problem(where, f"summary.json has no number with this path{suggest(path, allowed)}", path)


def _section(path: str) -> str:
    return path.partition(".")[0]


@cache
def known_metrics() -> list[str]:
    """Return the paths of all numbers in summary.json; N replaces any client, age or distance."""
    summary = simulate(Scenario.from_dict(EVERYTHING)).summary
    summary["time_to_accuracy_s"] = {}  # contains only targets that were reached
    numbers = (path for path, value in flatten(summary).items() if isinstance(value, int | float))
    found = dict.fromkeys(_NUMBER.sub(".N", path) for path in numbers)
    return [*found, *(f"time_to_accuracy_s.{target}" for target in TARGETS)]
