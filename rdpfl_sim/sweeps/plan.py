"""A sweep: one TOML file, many scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from rdpfl_sim.components.options import Count, NonNegativeInt
from rdpfl_sim.components.table import Strict, suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.scenario.overrides import Draft, reject_overrides
from rdpfl_sim.scenario.scenario import Scenario, make_paths_absolute, resolve_path, validation_problems
from rdpfl_sim.scenario.toml_file import read_toml

MAX_RUNS = 100_000
RESERVED = {
    "name": "runs have the name of the sweep",
    "seed": "the sweep's seeds stand in its place",
    "output.folder": "runs are written into the sweep's folder (--output)",
}
"""What a sweep decides itself, and why an override of it would have no effect."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Overrides = Annotated[
    dict[str, Any], Field(description="values by their path in the scenario, such as method.lambda")
]


class Case(Strict):
    """One value of an axis: what it is called, and what it changes in the scenario."""

    label: str = Field(min_length=1)
    set: Overrides = Field(default={})


class Axis(Strict):
    """One thing that varies."""

    name: str = Field(min_length=1)
    cases: list[Case] = Field(min_length=1)


class Profile(Strict):
    """A way to run the whole sweep with less effort."""

    set: Overrides = Field(default={})
    seeds: list[NonNegativeInt] | None = Field(default=None, min_length=1)


class Layout(Strict):
    """A table of the results."""

    title: str = ""
    rows: list[str] = Field(
        default=[], description="the axes whose cases are the rows; by default all that are not columns"
    )
    columns: list[str] = Field(default=[], description="the axes whose cases are the columns")
    metrics: dict[str, str] = Field(
        default={"accuracy": "accuracy.honest.personal.mean"},
        min_length=1,
        description="what the cells show: paths in summary.json, by their names in the table",
    )
    where: dict[str, str] = Field(default={}, description="only these cases, by axis")
    spread: Literal["deviation", "interval"] = Field(
        default="deviation", description="what follows a mean: standard deviation, or 95 % interval"
    )
    digits: Count = 4
    paper: dict[str, Any] = Field(
        default={},
        description="published numbers, nested by the labels of rows, of columns, and of several metrics",
    )

    def published(self, labels: Sequence[str]) -> float | None:
        """The published number of a cell, if there is one."""
        found: Any = self.paper
        for label in labels:
            found = found.get(label) if isinstance(found, Mapping) else None
        return found if isinstance(found, int | float) else None


class SweepSpec(Strict):
    """A base scenario, what varies, and the tables to make of it."""

    name: Name = "sweep"
    base: dict[str, Any] = Field(default={}, description="a scenario; in a file also the path of one")
    set: Overrides = Field(
        default={},
        description="changes of the base for all runs, by path; profiles, axes and the grid win over them",
    )
    seeds: list[NonNegativeInt] = Field(default=[1], min_length=1)
    grid: dict[str, list[Any]] = Field(default={}, description="values by path; every combination is run")
    axis: list[Axis] = Field(default=[], description="what varies in more than one value at once")
    profiles: dict[str, Profile] = Field(
        default={}, description="scaled-down versions, by name; in a file also the path of a file"
    )
    table: list[Layout] = Field(default=[], description="tables to print of the results")
    _draft: Draft | None = PrivateAttr(default=None)
    """The base scenario with what the file's `set` and the command line change in it."""

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> SweepSpec:
        """The sweep in a TOML file; the overrides change its base scenario, after the file's own `set`."""
        path = Path(path)
        raw = read_toml(path)
        if "base" not in raw and raw.keys() & Scenario.model_fields.keys() - {"name"}:
            raise ScenarioError([Problem("base", f"is missing: is it a scenario? rdpfl-sim {path} runs it")])
        raw.setdefault("name", path.stem)
        if isinstance(raw.get("base"), str):
            base_path = resolve_path(path.parent, raw["base"])
            raw["base"] = read_toml(base_path)
            make_paths_absolute(raw["base"], base_path.parent)
        if isinstance(raw.get("profiles"), str):
            raw["profiles"] = read_toml(resolve_path(path.parent, raw["profiles"]))
        base = raw.setdefault("base", {})
        draft = None
        if isinstance(base, dict):
            draft = Draft(Scenario, base)
            if isinstance(raw.get("set"), dict):
                for key, value in raw.pop("set").items():
                    draft.set(key, value)
            make_paths_absolute(base, path.parent)
            for override in overrides:
                draft.override(override)
            reject_overrides(draft.overrides, RESERVED)
        sweep = cls.from_dict(raw)
        sweep._draft = draft
        return sweep

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> SweepSpec:
        """The validated sweep, or a `ScenarioError` that lists all problems."""
        try:
            sweep = cls.model_validate(dict(raw))
        except ValidationError as error:
            raise ScenarioError(validation_problems(raw, error)) from None
        problems = list(sweep._contradictions())
        if problems:
            raise ScenarioError(problems)
        return sweep

    @property
    def axes(self) -> list[Axis]:
        """All that varies, the grid included."""
        grid = [
            Axis(name=path, cases=[Case(label=_label(value), set={path: value}) for value in values])
            for path, values in self.grid.items()
        ]
        return [*self.axis, *grid]

    def runs(self, profile: str | None = None) -> list[PlannedRun]:
        """Every run of the sweep, in the order of its axes; a `ScenarioError` tells what is impossible."""
        chosen = self._profile(profile)
        base = Draft(Scenario, self.base) if self._draft is None else self._draft
        problems: dict[str, Problem] = {}
        lost: dict[str, str] = {}
        runs = []
        for cases, seed in product(product(*(axis.cases for axis in self.axes)), chosen.seeds or self.seeds):
            draft = deepcopy(base)
            raw = draft.raw
            raw["name"], raw["seed"] = self.name, seed
            by_axis = zip(self.axes, cases, strict=True)
            changes = {"set": self.set, f"profile {profile!r}": chosen.set}
            changes |= {f"axis {axis.name!r} (case {case.label!r})": case.set for axis, case in by_axis}
            for where, overrides in changes.items():
                for path, value in overrides.items():
                    draft.set(path, deepcopy(value))
                for path, _ in draft.lost_overrides():
                    lost.setdefault(path, where)
            execution = raw.setdefault("execution", {})
            if isinstance(execution, dict):
                execution.setdefault("executor", {"name": "auto", "workers": 1})  # runs share the cores
            labels = {axis.name: case.label for axis, case in zip(self.axes, cases, strict=True)}
            try:
                scenario = Scenario.from_dict(raw)
                runs.append(PlannedRun(labels, scenario.with_notes(draft.notes(scenario.to_dict()))))
            except ScenarioError as error:
                where = ", ".join(f"{axis} = {label}" for axis, label in labels.items()) or "base"
                for problem in error.problems:
                    told = Problem(f"{where}: {problem.path}", problem.message, problem.value)
                    problems.setdefault(str(problem), told)
        for problem in _lost_overrides(base, lost):
            problems.setdefault(str(problem), problem)
        if problems:
            raise ScenarioError(list(problems.values()))
        return runs

    def overrides_lost_to(self, profile: str) -> list[str]:
        """Return the paths of the command line's overrides that a profile replaces."""
        draft = deepcopy(self._draft)
        if draft is None:
            return []
        for path, value in self.profiles[profile].set.items():
            draft.set(path, deepcopy(value))
        return [path for path, _ in draft.lost_overrides()]

    def _profile(self, name: str | None) -> Profile:
        if name is None:
            return Profile()
        if name not in self.profiles:
            raise ScenarioError(
                [Problem("--profile", f"no such profile{suggest(name, self.profiles)}", name)]
            )
        return self.profiles[name]

    def _contradictions(self) -> Iterator[Problem]:
        too_many = list(self._too_many_runs())
        yield from too_many or self._contradictions_between()

    def _too_many_runs(self) -> Iterator[Problem]:
        num_cases = prod([len(axis.cases) for axis in self.axis] + [len(v) for v in self.grid.values()])
        seeds = {"grid": self.seeds}
        seeds |= {f"profiles.{name}.seeds": p.seeds for name, p in self.profiles.items() if p.seeds}
        for path, chosen in seeds.items():
            size = num_cases * len(chosen)
            if size > MAX_RUNS:
                yield Problem(path, f"{size:,} runs are more than {MAX_RUNS:,}", size)

    def _contradictions_between(self) -> Iterator[Problem]:
        names = [axis.name for axis in self.axes]
        for axis in self.axes:
            labels = [case.label for case in axis.cases]
            if names.count(axis.name) > 1:
                yield Problem("axis", "two axes have the same name", axis.name)
            if len(set(labels)) < len(labels):
                yield Problem(f"axis {axis.name!r}", "two cases have the same label", labels)
        for place, layout in enumerate(self.table):
            yield from self._contradictions_in(layout, f"table[{place}]")

    def _contradictions_in(self, layout: Layout, path: str) -> Iterator[Problem]:
        labels = {axis.name: [case.label for case in axis.cases] for axis in self.axes}
        named = [*layout.rows, *layout.columns, *layout.where]
        for key in ("rows", "columns", "where"):
            for name in getattr(layout, key):
                if name not in labels:
                    yield Problem(f"{path}.{key}", f"no axis has this name{suggest(name, labels)}", name)
        for name, label in layout.where.items():
            if label not in labels.get(name, [label]):
                message = f"the axis has no such case{suggest(label, labels[name])}"
                yield Problem(f"{path}.where.{name}", message, label)
        for name in labels:
            if named.count(name) > 1:
                yield Problem(path, "an axis has one place: in rows, in columns or in where", name)
            elif layout.rows and name not in named:
                yield Problem(path, "an axis has no place: name it in rows, in columns or in where", name)


@dataclass(frozen=True)
class PlannedRun:
    """One scenario of a sweep, and the labels of its cases by axis."""

    labels: dict[str, str]
    scenario: Scenario

    @property
    def key(self) -> str:
        """A name for its folder: a hash of the whole resolved scenario."""
        return self.scenario.hash


def _lost_overrides(base: Draft, lost: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for every override that is lost, by path with what replaces it.

    An override that is wrong in itself gets the message that it would get without the sweep.
    """
    wrong: list[Problem] = []
    if lost:
        try:
            Scenario.from_dict(base.raw)
        except ScenarioError as error:
            wrong = error.problems
    for path, where in lost.items():
        own = [p for p in wrong if p.path == path or p.path.startswith((f"{path}.", f"{path}["))]
        message = f"the override is lost, because {where} replaces it; change it there"
        yield from own or [Problem(path, message, base.overrides[path])]


def _label(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:
        options = ", ".join(f"{key} {item}" for key, item in value.items() if key != "name")
        return f"{value['name']} ({options})" if options else str(value["name"])
    return str(value)
