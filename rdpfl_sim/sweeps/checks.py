"""Check the data sets and the metrics of a sweep once, before the first run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rdpfl_sim.components.suggestions import suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.records.metric_names import METRIC_NAMES, metric_key
from rdpfl_sim.simulation.experiment import load_data

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun
    from rdpfl_sim.sweeps.spec import SweepSpec


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
    if metric_key(path) in METRIC_NAMES:
        return
    same_section = [other for other in METRIC_NAMES if _section(other) == _section(path)]
    allowed = same_section or dict.fromkeys(map(_section, METRIC_NAMES))
    yield Problem(where, f"summary.json has no number with this path{suggest(path, allowed)}", path)


def _section(path: str) -> str:
    return path.partition(".")[0]
