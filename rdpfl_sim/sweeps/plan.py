"""Plan the runs of a sweep: every combination of its cases with every seed. Find the missing runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.records.run_folder import write_atomically
from rdpfl_sim.scenario.overrides import Draft
from rdpfl_sim.scenario.scenario import Scenario
from rdpfl_sim.sweeps.results import folder_of, read_summary
from rdpfl_sim.sweeps.spec import SweepSpec


@dataclass(frozen=True)
class PlannedRun:
    """One scenario of a sweep, and the labels of its cases by axis."""

    labels: dict[str, str]
    scenario: Scenario

    @property
    def key(self) -> str:
        """The name of the run's folder: a hash of the whole resolved scenario."""
        return self.scenario.hash


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
    if len({run.scenario.execution.arithmetic for run in runs}) > 1:
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


def write_plan(path: Path, sweep: SweepSpec, name: str, runs: Iterable[PlannedRun]) -> None:
    """Write sweep.json: the axes, the folder and the labels of every run, and the layouts of the tables."""
    output = path.parent
    plan = {
        "name": name,
        "axes": [{"name": axis.name, "labels": [case.label for case in axis.cases]} for axis in sweep.axes],
        "runs": [
            {"folder": folder_of(run, output).relative_to(output).as_posix(), "labels": run.labels}
            for run in runs
        ],
        "tables": [layout.model_dump() for layout in sweep.table],
    }
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(plan, indent=1).encode())


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


def missing_runs(runs: Iterable[PlannedRun], output: Path) -> list[PlannedRun]:
    """Return the incomplete runs; each scenario appears once."""
    unique = {run.key: run for run in runs}
    return [run for run in unique.values() if read_summary(run, output) is None]


def damaged_folders(missing: Iterable[PlannedRun], output: Path) -> list[Path]:
    """Return the folders of missing runs that were complete before and have to be repeated."""
    folders = (folder_of(run, output) for run in missing)
    return [folder for folder in folders if folder.exists()]
