"""A scenario: one TOML file that describes one experiment. It contains data, never code."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from hashlib import blake2b
from operator import getitem
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from rdpfl_sim.components.options import Count
from rdpfl_sim.components.schema import Component, Strict, components_in
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.execution import arithmetic
from rdpfl_sim.execution.arithmetic import Arithmetic
from rdpfl_sim.learning.datasets.download import data_folder, is_fetched
from rdpfl_sim.plugin_checks import guard_and_try, plugins_in
from rdpfl_sim.scenario.bundled import find_scenario
from rdpfl_sim.scenario.checks import CHECKS, component_problems
from rdpfl_sim.scenario.overrides import Draft, paths_of_key
from rdpfl_sim.scenario.sections import (
    CHOICES,
    AdversarySection,
    CheckpointSection,
    ClientsSection,
    EvaluationSection,
    ExecutionSection,
    ModelTable,
    NetworkSection,
    OutputSection,
    TimingSection,
    TrainingSection,
    component_field,
)
from rdpfl_sim.toml import TomlTable, is_sweep, join_path, read_toml

T = TypeVar("T")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, Mapping | AdversarySection) else value


class Scenario(Strict):
    """A validated experiment."""

    name: str = Field(
        default="scenario",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=100,
        description="name, in reports and at the start of run folders; by default that of the file",
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(  # TOML integers have 64 bits
        default=1, description="seed, which determines all random draws"
    )
    rounds: Count = Field(default=50, description="rounds per client")
    clients: ClientsSection = ClientsSection()
    topology: Annotated[Component, CHOICES["topology"]] = component_field(
        "topology", "graph of the clients: neighbours exchange messages"
    )
    data: Annotated[Component, CHOICES["data"]] = component_field("data", "data set")
    partition: Annotated[Component, CHOICES["partition"]] = component_field(
        "partition", "distribution of the training data over clients"
    )
    model: Annotated[ModelTable, CHOICES["model"]] = component_field(
        "model", "model that every client trains"
    )
    training: TrainingSection = TrainingSection()
    method: Annotated[Component, CHOICES["method"]] = component_field(
        "method", "what clients send, and how they use what they receive"
    )
    adversary: Annotated[
        list[AdversarySection],
        BeforeValidator(_as_list, json_schema_input_type=AdversarySection | list[AdversarySection]),
    ] = Field(default=[], description="a table, or a list of tables: one per group of Byzantine clients")
    network: NetworkSection = NetworkSection()
    faults: list[Annotated[Component, CHOICES["fault"]]] = Field(
        default=[], description="faults that occur during the run: a list of tables"
    )
    timing: TimingSection = TimingSection()
    evaluation: EvaluationSection = EvaluationSection()
    output: OutputSection = OutputSection()
    checkpoint: CheckpointSection = CheckpointSection()
    execution: ExecutionSection = ExecutionSection()
    notes: list[str] = Field(
        default=[],
        description="remarks that become warnings of the run; an override adds one for each lost setting",
    )

    @classmethod
    def from_dict(cls, raw: Mapping[str, object]) -> Scenario:
        """Validate a table; raise a `ScenarioError` that lists all problems."""
        problems: list[Problem] = []
        try:
            scenario = cls.model_validate(dict(raw))
            valid = {name: getattr(scenario, name) for name in cls.model_fields}
        except ValidationError as error:
            problems = [_with_path(problem, dict(raw)) for problem in validation_problems(raw, error)]
            valid = dict(_valid_parts(cls, raw))
        for name, part in list(valid.items()):
            broken = list(_plugin_problems(raw, name, part, valid.get("execution"), valid.get("training")))
            problems += broken
            if broken:
                del valid[name]  # checks must not call broken plug-ins
        if "clients" in valid:
            for name, part in valid.items():
                for location, component in components_in(part, (name,)):
                    problems += component_problems(
                        _toml_path(raw, location), component, valid["clients"].count
                    )
        for check in CHECKS:
            sections = list(inspect.signature(check).parameters)
            if all(name in valid for name in sections):
                problems.extend(check(*(valid[name] for name in sections)))
        if problems:
            raise ScenarioError(problems)
        return scenario

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = (), seed: int | None = None) -> Scenario:
        """Read a scenario from a TOML file and apply `path.to.key=value` overrides.

        The name of a bundled scenario, such as `ring_30pct`, is also a path.
        """
        file = find_scenario(path)
        raw = read_toml(file)
        if is_sweep(raw):
            raise ScenarioError(
                [Problem(str(path), f"is a sweep; run it with: rdpfl-sim sweep {quote(str(path))}")]
            )
        return cls._from_file(raw, file, overrides, seed)

    @classmethod
    def of_run(cls, folder: Path) -> Scenario:
        """Read the scenario of a run folder."""
        path = folder / "scenario.toml"
        return cls._from_file(read_run(path), path)

    @classmethod
    def _from_file(
        cls, raw: TomlTable, path: Path, overrides: Iterable[str] = (), seed: int | None = None
    ) -> Scenario:
        draft = Draft(cls, raw)
        for override in overrides:
            draft.override(override)
        if seed is not None:
            if "seed" in draft.overrides:
                raise ScenarioError([Problem("seed", "has no effect: `seed` replaces it", raw["seed"])])
            raw["seed"] = seed
        raw.setdefault(
            "name", re.sub(r"[^A-Za-z0-9._-]|^[^A-Za-z0-9]", "-", path.stem).strip("-") or "scenario"
        )
        make_paths_absolute(raw, path.parent)
        scenario = cls.from_dict(raw)
        return scenario.with_notes(draft.notes(scenario.to_dict()))

    def with_notes(self, notes: Iterable[str]) -> Scenario:
        """Return a copy of the scenario with additional notes."""
        return self.model_copy(update={"notes": [*self.notes, *notes]})

    def to_dict(self) -> TomlTable:
        """Return every option with its value, as in TOML; options without a value are omitted."""
        dumped = _without_none(self.model_dump(by_alias=True))
        assert isinstance(dumped, dict)
        for location, component in components_in(self):
            table: Any = reduce(getitem, location, dumped)
            for option, replaced in component.facts.replaces.items():
                if option in table:
                    del table[replaced]
        for group in dumped["adversary"]:
            if "ids" in group:  # ids replace fraction and placement
                del group["fraction"], group["placement"]
        if len(self.adversary) == 1:
            (dumped["adversary"],) = dumped["adversary"]
        if self.training.local_steps is not None:
            del dumped["training"]["local_epochs"]
        if not self.notes:
            del dumped["notes"]
        return dumped

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic on a CPU; bfloat16 implies native arithmetic."""
        return _arithmetic(self.execution.arithmetic, self.training.precision)

    @property
    def hash(self) -> str:
        """A hash of all options, defaults included; notes do not change it.

        Older scenarios have no `execution.arithmetic`, and were computed natively.
        """
        content = {key: value for key, value in self.to_dict().items() if key != "notes"}
        if self.execution.arithmetic == "native":
            del content["execution"]["arithmetic"]
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return blake2b(text, digest_size=10).hexdigest()


def read_run(path: Path) -> TomlTable:
    """Read the scenario file of a run folder. Without `execution.arithmetic`, the run was native."""
    raw = read_toml(path, follow_links=False)
    execution = raw.setdefault("execution", {})
    if isinstance(execution, dict):
        execution.setdefault("arithmetic", "native")
    return raw


def arithmetic_of(folder: Path) -> object:
    """Return the arithmetic of a run folder; for an invalid scenario, any value."""
    raw = read_run(folder / "scenario.toml")
    execution, training = raw["execution"], raw.get("training", {})
    if not isinstance(execution, dict) or not isinstance(training, dict):
        return None
    return _arithmetic(execution.get("arithmetic"), training.get("precision"))


def _arithmetic(given: T, precision: object) -> T | Literal["native"]:
    return "native" if precision == "bfloat16" else given


def reject_network_access(scenario: Scenario, allow_cluster: bool) -> None:
    """Raise a `ScenarioError` if a run folder, which may be untrusted, would use the network."""
    problems = []
    address = getattr(scenario.execution.executor, "address", None)
    if address is not None and not allow_cluster:
        message = "run folders may not connect to a cluster without `allow_cluster`"
        problems.append(Problem("execution.executor.address", message, address))
    if getattr(scenario.data, "download", False):
        name, folder = scenario.data.name, getattr(scenario.data, "folder", None)
        if not is_fetched(name, data_folder(folder)):
            option = "" if folder is None else f" --folder {quote(folder)}"
            message = f"the data set is missing; download it with: rdpfl-sim data {name}{option}"
            problems.append(Problem("data.download", message, True))
    if problems:
        raise ScenarioError(problems)


def _valid_parts(cls: type[Scenario], raw: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    default = cls()
    for name, info in cls.model_fields.items():
        if name not in raw:
            yield name, getattr(default, name)
            continue
        try:
            yield name, TypeAdapter(info.rebuild_annotation()).validate_python(raw[name])
        except ValidationError:
            continue


def _plugin_problems(
    raw: Mapping[str, object], name: str, part: object, execution: object, training: object
) -> Iterator[Problem]:
    for location, plugin in plugins_in(part, (name,)):
        if isinstance(execution, ExecutionSection) and isinstance(training, TrainingSection):
            with suppress(ScenarioError):  # building the experiment reports it
                # The check computes, which fixes the arithmetic.
                arithmetic.use(_arithmetic(execution.arithmetic, training.precision))
        flaw = guard_and_try(plugin)
        if flaw is not None:
            yield Problem(_toml_path(raw, location), flaw)


def make_paths_absolute(raw: TomlTable, folder: Path) -> None:
    """Make file names absolute, because the copy of the scenario in a run folder must remain valid."""
    faults = raw.get("faults", [])
    faults = [fault for fault in faults if isinstance(fault, dict)] if isinstance(faults, list) else []
    tables = [raw.get("topology"), raw.get("data"), *faults, *(fault.get("topology") for fault in faults)]
    for table, key in (*((table, "path") for table in tables), (raw.get("model"), "weights")):
        if isinstance(table, dict) and isinstance(table.get(key), str):
            table[key] = str(resolve_path(folder, table[key]))


def resolve_path(folder: Path, path: str) -> Path:
    """Return the absolute path of a file named in a scenario in `folder`; leave an invalid path unchanged."""
    try:
        return (folder / os.path.expanduser(path)).resolve()
    except (ValueError, OSError, RuntimeError):  # a NUL character or circular links
        return folder / path


def _with_path(problem: Problem, raw: TomlTable) -> Problem:
    """Add to the message about an unknown key the paths at which the scenario has such a key."""
    start, separator, allowed = problem.message.partition("allowed: ")
    if not start.startswith("unknown key; "):
        return problem
    paths = paths_of_key(Scenario, raw, problem.path.rpartition(".")[2])
    hint = f"unknown key; did you mean {' or '.join(paths)}?; " if paths else start
    return replace(problem, message=f"{hint}{separator}{allowed}")


def validation_problems(raw: Mapping[str, object], error: ValidationError) -> list[Problem]:
    """Convert a validation error of a table to problems with TOML paths."""
    return [Problem(_toml_path(raw, e["loc"]), e["msg"], e["input"]) for e in error.errors()]


def _toml_path(raw: Mapping[str, object], location: tuple[int | str, ...]) -> str:
    """Return the TOML path of a location; a single group of attackers is a table, not a list."""
    if location[:2] == ("adversary", 0) and isinstance(raw["adversary"], Mapping):
        location = ("adversary", *location[2:])
    return join_path(location)


def _without_none(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value
