"""A scenario: one TOML file, one experiment. Data, never code."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from rdpfl_sim.components.options import Count
from rdpfl_sim.components.registry import Component, Strict
from rdpfl_sim.contracts.kinds import hold, plugins_in
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.learning.datasets.download import data_folder, is_fetched
from rdpfl_sim.scenario.checks import CHECKS
from rdpfl_sim.scenario.overrides import Draft
from rdpfl_sim.scenario.paths import join_path
from rdpfl_sim.scenario.sections import (
    CHOICES,
    AdversarySection,
    CheckpointSection,
    Clients,
    EvaluationSection,
    Execution,
    NetworkSection,
    Output,
    Timing,
    Training,
    chosen,
)
from rdpfl_sim.scenario.toml_file import read_toml


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, Mapping | AdversarySection) else value


class Scenario(Strict):
    """One experiment."""

    name: str = Field(default="scenario", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1  # what TOML can hold
    rounds: Count = Field(default=50, description="rounds of every client")
    clients: Clients = Clients()
    topology: Annotated[Component, CHOICES["topology"]] = chosen("topology")
    data: Annotated[Component, CHOICES["data"]] = chosen("data")
    partition: Annotated[Component, CHOICES["partition"]] = chosen("partition")
    model: Annotated[Component, CHOICES["model"]] = chosen("model")
    training: Training = Training()
    method: Annotated[Component, CHOICES["method"]] = chosen("method")
    adversary: Annotated[
        list[AdversarySection],
        BeforeValidator(_one_or_more, json_schema_input_type=AdversarySection | list[AdversarySection]),
    ] = Field(default=[], description="a table, or a list of tables, one for each group of Byzantine clients")
    network: NetworkSection = NetworkSection()
    faults: list[Annotated[Component, CHOICES["fault"]]] = Field(
        default=[], description="what goes wrong; a list of tables"
    )
    timing: Timing = Timing()
    evaluation: EvaluationSection = EvaluationSection()
    output: Output = Output()
    checkpoint: CheckpointSection = CheckpointSection()
    execution: Execution = Execution()
    notes: list[str] = Field(
        default=[],
        description="remarks that become warnings of the run; --set adds one for every key that it loses",
    )

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Scenario:
        """The validated scenario, or a `ScenarioError` that lists all problems."""
        problems: list[Problem] = []
        try:
            scenario = cls.model_validate(dict(raw))
            valid = {name: getattr(scenario, name) for name in cls.model_fields}
        except ValidationError as error:
            problems = validation_problems(raw, error)
            valid = dict(_valid_parts(cls, raw))
        for name, part in list(valid.items()):
            broken = list(_broken_plugins(raw, name, part))
            problems += broken
            if broken:
                del valid[name]  # no check may call what is broken
        for check in CHECKS:
            needs = list(inspect.signature(check).parameters)
            if all(name in valid for name in needs):
                problems.extend(check(*(valid[name] for name in needs)))
        if problems:
            raise ScenarioError(problems)
        return scenario

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = (), seed: int | None = None) -> Scenario:
        """The scenario in a TOML file, with `path.to.key=value` overrides."""
        path = Path(path)
        return cls._loaded(read_toml(path), path, overrides, seed)

    @classmethod
    def of_run(cls, folder: Path) -> Scenario:
        """The scenario in a run folder."""
        path = folder / "scenario.toml"
        return cls._loaded(read_toml(path, follow_links=False), path)

    @classmethod
    def _loaded(
        cls, raw: dict[str, Any], path: Path, overrides: Iterable[str] = (), seed: int | None = None
    ) -> Scenario:
        if "base" in raw:
            raise ScenarioError(
                [Problem("base", f"the file is a sweep; run it with: rdpfl-sim sweep {path}")]
            )
        draft = Draft(cls, raw)
        for override in overrides:
            draft.override(override)
        if seed is not None:
            if "seed" in draft.overrides:
                raise ScenarioError([Problem("seed", "has no effect beside --seed", raw["seed"])])
            raw["seed"] = seed
        raw.setdefault(
            "name", re.sub(r"[^A-Za-z0-9._-]|^[^A-Za-z0-9]", "-", path.stem).strip("-") or "scenario"
        )
        make_paths_absolute(raw, path.parent)
        scenario = cls.from_dict(raw)
        return scenario.with_notes(draft.notes(scenario.to_dict()))

    def with_notes(self, notes: Iterable[str]) -> Scenario:
        """Return the scenario with more notes."""
        return self.model_copy(update={"notes": [*self.notes, *notes]})

    def to_dict(self) -> dict[str, Any]:
        """Every option with its value, as TOML would hold it (absent values are left out)."""
        dumped = _without_none(self.model_dump(by_alias=True))
        assert isinstance(dumped, dict)
        for group in dumped["adversary"]:
            if "ids" in group:  # they stand in place of these
                del group["fraction"], group["placement"]
            if "victims" in group["timing"]:
                del group["timing"]["fraction"]
        if len(self.adversary) == 1:
            (dumped["adversary"],) = dumped["adversary"]
        if self.training.local_steps is not None:
            del dumped["training"]["local_epochs"]
        if not self.notes:
            del dumped["notes"]
        return dumped

    @property
    def hash(self) -> str:
        """A hash of everything that the scenario says, defaults included; of its notes it is independent."""
        content = {key: value for key, value in self.to_dict().items() if key != "notes"}
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return blake2b(text, digest_size=10).hexdigest()


def reject_network_access(scenario: Scenario, allow_cluster: bool) -> None:
    """Raise a `ScenarioError` if the run of a folder, perhaps from elsewhere, would use the network."""
    problems = []
    address = getattr(scenario.execution.executor, "address", None)
    if address is not None and not allow_cluster:
        message = "a run folder may come from elsewhere; --allow-cluster (allow_cluster=True) lets it connect"
        problems.append(Problem("execution.executor.address", message, address))
    if getattr(scenario.data, "download", False):
        name, folder = scenario.data.name, getattr(scenario.data, "folder", None)
        if not is_fetched(name, data_folder(folder)):
            option = "" if folder is None else f" --folder {quote(folder)}"
            message = f"would be fetched now; fetch it before, with: rdpfl-sim data {name}{option}"
            problems.append(Problem("data.download", message, True))
    if problems:
        raise ScenarioError(problems)


def _valid_parts(cls: type[Scenario], raw: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    default = cls()
    for name, info in cls.model_fields.items():
        if name not in raw:
            yield name, getattr(default, name)
            continue
        try:
            annotation: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
            yield name, TypeAdapter(annotation).validate_python(raw[name])
        except ValidationError:
            continue


def _broken_plugins(raw: Mapping[str, Any], name: str, part: Any) -> Iterator[Problem]:
    for location, plugin in plugins_in(part, (name,)):
        flaw = hold(plugin)
        if flaw is not None:
            yield Problem(_path(raw, location), flaw)


def make_paths_absolute(raw: dict[str, Any], folder: Path) -> None:
    """Files are named relative to the scenario, not to the shell; a run folder's copy must find them too."""
    faults = raw.get("faults", [])
    faults = [fault for fault in faults if isinstance(fault, dict)] if isinstance(faults, list) else []
    for table in (
        raw.get("topology"),
        raw.get("data"),
        *faults,
        *(fault.get("topology") for fault in faults),
    ):
        if isinstance(table, dict) and isinstance(table.get("path"), str):
            table["path"] = str(resolve_path(folder, table["path"]))


def resolve_path(folder: Path, path: str) -> Path:
    """The path of a file that a scenario in a folder names; an impossible one stays as it is."""
    try:
        return (folder / os.path.expanduser(path)).resolve()
    except (ValueError, OSError, RuntimeError):  # a NUL character, or links in a circle
        return folder / path


def validation_problems(raw: Mapping[str, Any], error: ValidationError) -> list[Problem]:
    """What is wrong with a table, in our words."""
    return [Problem(_path(raw, e["loc"]), e["msg"], e["input"]) for e in error.errors()]


def _path(raw: Mapping[str, Any], location: tuple[int | str, ...]) -> str:
    """The TOML path of an error; a single group of attackers is a table, not a list."""
    if location[:2] == ("adversary", 0) and isinstance(raw["adversary"], Mapping):
        location = ("adversary", *location[2:])
    return join_path(location)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value
