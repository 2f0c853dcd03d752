"""The TOML file of a sweep: a base scenario, its variations, and the tables to print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from math import prod
from pathlib import Path
from shlex import quote
from typing import Annotated

from pydantic import AfterValidator, Field, PrivateAttr, ValidationError
from pydantic_core import PydanticCustomError

from rdpfl_sim.components.options import NonNegativeInt
from rdpfl_sim.components.schema import Strict, suggest
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.records.summary import METRIC_NAMES, metric_key
from rdpfl_sim.results.tables import TableLayout
from rdpfl_sim.scenario.bundled import find_scenario
from rdpfl_sim.scenario.overrides import Draft, reject_overrides
from rdpfl_sim.scenario.scenario import Scenario, make_paths_absolute, resolve_path, validation_problems
from rdpfl_sim.toml import TomlTable, leaves, read_toml

MAX_RUNS = 100_000
RESERVED = {
    "name": "runs have the name of the sweep",
    "seed": "the sweep's seeds are used instead",
    "output.folder": "runs are written into the sweep's folder (`output`)",
}
"""Keys that are set by the sweep, with the reason why an override has no effect."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


def _distinct(seeds: list[int]) -> list[int]:
    for seed, num in Counter(seeds).items():
        if num > 1:
            text = f"seed {seed} is listed {num} times"
            raise PydanticCustomError("repeated_seed", "{text}", {"text": text})
    return seeds


Seeds = Annotated[list[NonNegativeInt], Field(min_length=1), AfterValidator(_distinct)]
Overrides = Annotated[
    TomlTable, Field(description="values by their path in the scenario, such as method.lambda")
]


class Case(Strict):
    """One value of an axis: its label, and its changes to the scenario."""

    label: str = Field(min_length=1)
    set: Overrides = Field(default={})


class Axis(Strict):
    """A dimension along which the runs of a sweep vary."""

    name: str = Field(min_length=1)
    cases: list[Case] = Field(min_length=1)


class Profile(Strict):
    """A scaled-down version of the whole sweep."""

    set: Overrides = Field(default={})
    seeds: Seeds | None = None


_QUOTES = 'must be in quotes, because it contains dots: "{path}" = [...]'


class SweepSpec(Strict):
    """A base scenario, its variations, the seeds, and the tables to print."""

    name: Name = "sweep"
    base: TomlTable = Field(default={}, description="a scenario, or the path of a scenario file")
    set: Overrides = Field(
        default={},
        description="changes to the base for all runs, by path; profiles, axes and the grid take precedence",
    )
    seeds: Seeds = Field(default=[1])
    grid: dict[str, Annotated[list[object], Field(min_length=1)]] = Field(
        default={}, description="values by path; every combination is run"
    )
    axis: list[Axis] = Field(default=[], description="sets of changes that vary together")
    profiles: dict[str, Profile] = Field(
        default={}, description="scaled-down versions, by name, or the path of a file with them"
    )
    table: list[TableLayout] = Field(default=[], description="tables of results to print")
    _draft: Draft | None = PrivateAttr(default=None)
    """The base scenario, changed by the file's `set` and by the command line."""

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> SweepSpec:
        """Read a sweep from a TOML file; overrides change its base scenario, after the file's own `set`.

        The name of a bundled sweep, such as `paper/lambda`, is also a path.
        """
        given, path = path, find_scenario(path)
        raw = read_toml(path)
        if "base" not in raw:
            message = (
                "is missing: a sweep needs a scenario, or the path of a scenario file; if this file is a "
                f"scenario, run it with: rdpfl-sim {quote(str(given))}"
            )
            raise ScenarioError([Problem("base", message)])
        raw.setdefault("name", path.stem)
        if isinstance(raw.get("base"), str):
            base_path = resolve_path(path.parent, raw["base"])
            raw["base"] = read_toml(base_path)
            make_paths_absolute(raw["base"], base_path.parent)
        if isinstance(raw.get("profiles"), str):
            raw["profiles"] = read_toml(resolve_path(path.parent, raw["profiles"]))
        base = raw.get("base")
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
        sweep.check_metrics()
        sweep._draft = draft
        return sweep

    @classmethod
    def from_dict(cls, raw: Mapping[str, object]) -> SweepSpec:
        """Return the validated sweep, or raise a `ScenarioError` that lists all problems."""
        unquoted = [Problem(f"grid.{path}", _QUOTES.format(path=path)) for path in _tables(raw.get("grid"))]
        if unquoted:
            raise ScenarioError(unquoted)
        try:
            sweep = cls.model_validate(dict(raw))
        except ValidationError as error:
            raise ScenarioError(validation_problems(raw, error)) from None
        problems = list(sweep._conflicts())
        if problems:
            raise ScenarioError(problems)
        return sweep

    @property
    def axes(self) -> list[Axis]:
        """All axes, including the grid."""
        grid = [
            Axis(name=path, cases=[Case(label=_label(value), set={path: value}) for value in values])
            for path, values in self.grid.items()
        ]
        return [*self.axis, *grid]

    def base_draft(self) -> Draft:
        """Return the base scenario, changed by the file's `set` and by the command line."""
        return Draft(Scenario, deepcopy(self.base)) if self._draft is None else deepcopy(self._draft)

    def profile(self, name: str | None) -> Profile:
        """Return the profile with this name, or an empty profile if the name is None."""
        if name is None:
            return Profile()
        if name not in self.profiles:
            raise ScenarioError(
                [Problem("`profile`", f"no such profile{suggest(name, self.profiles)}", name)]
            )
        return self.profiles[name]

    def warnings(self, profile: str | None = None) -> list[str]:
        """Return a warning if neither the sweep nor the profile has seeds."""
        if "seeds" in self.model_fields_set or self.profile(profile).seeds is not None:
            return []
        return [
            f"seeds is missing: every case runs once, with seed {self.seeds[0]}, and has no interval; "
            "for intervals set, for example, seeds = [1, 2, 3, 4, 5]"
        ]

    def check_metrics(self) -> None:
        """Raise a `ScenarioError` if a table uses a metric that is not in summary.json."""
        problems = [
            problem
            for index, layout in enumerate(self.table)
            for name, path in layout.metrics.items()
            for problem in _metric_problems(path, f"table[{index}].metrics.{name}")
        ]
        if problems:
            raise ScenarioError(problems)

    def _conflicts(self) -> Iterator[Problem]:
        too_many = list(self._size_problems())
        yield from too_many or self._name_problems()

    def _size_problems(self) -> Iterator[Problem]:
        num_cases = prod([len(axis.cases) for axis in self.axis] + [len(v) for v in self.grid.values()])
        seeds = {"grid": self.seeds}
        seeds |= {f"profiles.{name}.seeds": p.seeds for name, p in self.profiles.items() if p.seeds}
        for path, chosen in seeds.items():
            size = num_cases * len(chosen)
            if size > MAX_RUNS:
                yield Problem(path, f"the sweep has {size:,} runs; allowed: {MAX_RUNS:,}", size)

    def _name_problems(self) -> Iterator[Problem]:
        axes = self.axes
        names = [axis.name for axis in axes]
        for axis in axes:
            labels = [case.label for case in axis.cases]
            if names.count(axis.name) > 1:
                yield Problem("axis", "two axes have the same name", axis.name)
            if len(set(labels)) < len(labels):
                yield Problem(f"axis {axis.name!r}", "two cases have the same label", labels)
        for index, layout in enumerate(self.table):
            cases = {axis.name: [case.label for case in axis.cases] for axis in axes}
            yield from layout.problems(f"table[{index}]", cases)


def _label(value: object) -> str:
    if isinstance(value, dict) and "name" in value:
        options = ", ".join(f"{key} {item}" for key, item in value.items() if key != "name")
        return f"{value['name']} ({options})" if options else str(value["name"])
    return str(value)


def _metric_problems(path: str, where: str) -> Iterator[Problem]:
    if metric_key(path) in METRIC_NAMES:
        return
    same_section = [other for other in METRIC_NAMES if _section(other) == _section(path)]
    allowed = same_section or dict.fromkeys(map(_section, METRIC_NAMES))
    yield Problem(where, f"summary.json has no number with this path{suggest(path, allowed)}", path)


def _section(path: str) -> str:
    return path.partition(".")[0]


def _tables(grid: object) -> list[str]:
    """Return the paths of the lists inside tables of the grid: TOML reads an unquoted path as a table."""
    entries = grid.items() if isinstance(grid, dict) else ()
    tables = {key: value for key, value in entries if isinstance(value, dict)}
    return [path for path, value in leaves(tables).items() if isinstance(value, list)]
