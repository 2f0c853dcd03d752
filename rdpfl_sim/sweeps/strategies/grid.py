"""The runs of a sweep: every combination of its cases with every seed, in one round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.scenario.overrides import Draft
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.plan import PlannedRun
from rdpfl_sim.sweeps.spec import SweepSpec


@dataclass
class Grid:
    """The strategy that executes all runs of a sweep in one round."""

    runs: list[PlannedRun]
    is_done: bool = False

    def next_runs(self) -> list[PlannedRun]:
        """Return all runs, once."""
        return [] if self.is_done else self.runs

    def num_later_runs(self) -> int:
        """Return zero: no run depends on the result of another."""
        return 0

    def read_results(self, output: Path) -> None:
        """End the strategy: the tables read the results of a sweep."""
        self.is_done = True


def plan_runs(sweep: SweepSpec, profile: str | None = None) -> list[PlannedRun]:
    """Return every run of a sweep, in the order of its axes, or raise a `ScenarioError` with all problems."""
    chosen, base, axes = sweep.profile(profile), sweep.base_draft(), sweep.axes
    problems: dict[str, Problem] = {}
    replaced: dict[str, str] = {}
    runs = []
    for cases, seed in product(product(*(axis.cases for axis in axes)), chosen.seeds or sweep.seeds):
        by_axis = {axis.name: case for axis, case in zip(axes, cases, strict=True)}
        labels = {name: case.label for name, case in by_axis.items()}
        draft = deepcopy(base)
        draft.raw["name"], draft.raw["seed"] = sweep.name, seed
        changes = {"set": sweep.set, f"profile {profile!r}": chosen.set}
        changes |= {f"axis {name!r} (case {case.label!r})": case.set for name, case in by_axis.items()}
        for source, overrides in changes.items():
            for path in _apply(draft, overrides):
                replaced.setdefault(path, source)
        execution = draft.raw.setdefault("execution", {})
        if isinstance(execution, dict):
            execution.setdefault("executor", {"name": "auto", "workers": 1})  # the runs share the cores
        try:
            scenario = Scenario.from_dict(draft.raw)
            runs.append(PlannedRun(labels, scenario.with_notes(draft.notes(scenario.to_dict()))))
        except ScenarioError as error:
            where = ", ".join(f"{axis} = {label}" for axis, label in labels.items()) or "base"
            for problem in error.problems:
                located = Problem(f"{where}: {problem.path}", problem.message, problem.value)
                problems.setdefault(str(problem), located)
    if len({run.scenario.arithmetic for run in runs}) > 1:
        message = "must be the same in all runs of a sweep, because their results are compared"
        problems["execution.arithmetic"] = Problem("execution.arithmetic", message)
    for problem in _replaced_overrides(base, replaced):
        problems.setdefault(str(problem), problem)
    if problems:
        raise ScenarioError(list(problems.values()))
    return runs


def overrides_replaced_by(sweep: SweepSpec, profile: str) -> list[str]:
    """Return the paths of command-line overrides that a profile replaces."""
    return _apply(sweep.base_draft(), sweep.profile(profile).set)


def _apply(draft: Draft, changes: Mapping[str, object]) -> list[str]:
    """Change a draft, and return the paths of command-line overrides that no longer apply."""
    for path, value in changes.items():
        draft.set(path, deepcopy(value))
    return [path for path, _ in draft.lost_overrides()]


def _replaced_overrides(base: Draft, replaced: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for every replaced override; `replaced` maps its path to the source of the new value.

    An override that is itself invalid gets the same message as without the sweep.
    """
    invalid: list[Problem] = []
    if replaced:
        try:
            Scenario.from_dict(base.raw)
        except ScenarioError as error:
            invalid = error.problems
    for path, source in replaced.items():
        own = [p for p in invalid if p.path == path or p.path.startswith((f"{path}.", f"{path}["))]
        message = f"has no effect: {source} replaces it; change it there"
        yield from own or [Problem(path, message, base.overrides[path])]
