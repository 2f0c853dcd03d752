"""A scenario: one TOML file, one experiment. Data, never code."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import floor
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.learning.datasets import DATASETS
from rdpfl_sim.learning.models import MODELS
from rdpfl_sim.learning.partition import PARTITIONS
from rdpfl_sim.maths.attacks import ATTACKS
from rdpfl_sim.methods import METHODS
from rdpfl_sim.options import Count, Fraction, NonNegative, NonNegativeInt, Positive
from rdpfl_sim.registry import Component, OneOf, Strict
from rdpfl_sim.world.distributions import COMPUTE, LATENCIES
from rdpfl_sim.world.network import BANDWIDTHS, LOSSES
from rdpfl_sim.world.placement import PLACEMENTS
from rdpfl_sim.world.topology import TOPOLOGIES
from rdpfl_sim.world.waiting import STALENESS, WAITS

CHOICES = {
    choice.kind: choice
    for choice in (
        OneOf("topology", TOPOLOGIES, "ring"),
        OneOf("data", DATASETS, "digits"),
        OneOf("partition", PARTITIONS, "dirichlet"),
        OneOf("model", MODELS, "mlp"),
        OneOf("method", METHODS, "rdpfl"),
        OneOf("attack", ATTACKS, "none"),
        OneOf("placement", PLACEMENTS, "random"),
        OneOf("latency", LATENCIES, "constant"),
        OneOf("loss", LOSSES, "none"),
        OneOf("bandwidth", BANDWIDTHS, "unlimited"),
        OneOf("compute", COMPUTE, "constant"),
        OneOf("wait", WAITS, "all"),
        OneOf("staleness", STALENESS, "drop"),
    )
}
"""Everything that is chosen by name at the level of a section, with its default."""


def _chosen(kind: str) -> Any:
    return Field(default=CHOICES[kind].default, description=f"one of: {', '.join(CHOICES[kind].registry)}")


MAX_LINKS = 10_000_000


class Clients(Strict):
    """Who takes part."""

    count: Count = 10


class Training(Strict):
    """Local SGD."""

    local_epochs: Count = Field(
        default=1, description="passes over the shard a round: K = epochs * ceil(n / batch_size)"
    )
    local_steps: Count | None = Field(default=None, description="K itself, in place of local_epochs")
    batch_size: Count = 64
    learning_rate: Positive = 0.01
    momentum: Annotated[NonNegative, Field(lt=1)] = 0.0
    weight_decay: NonNegative = 0.0
    start: Literal["same", "different"] = Field(
        default="same", description="whether all clients begin with the same model"
    )


class AdversarySection(Strict):
    """Who is Byzantine, and what they do."""

    attack: Annotated[Component, CHOICES["attack"]] = _chosen("attack")
    fraction: Fraction = Field(default=0.0, description="of the clients, rounded down to whole clients")
    ids: list[NonNegativeInt] | None = Field(
        default=None, description="explicit ids, in place of fraction and placement"
    )
    placement: Annotated[Component, CHOICES["placement"]] = _chosen("placement")
    patience_s: Positive = Field(
        default=10.0, description="how long an omniscient attacker waits for the honest updates of its round"
    )


class NetworkSection(Strict):
    """What happens to messages on their way."""

    latency: Annotated[Component, CHOICES["latency"]] = _chosen("latency")
    loss: Annotated[Component, CHOICES["loss"]] = _chosen("loss")
    bandwidth: Annotated[Component, CHOICES["bandwidth"]] = _chosen("bandwidth")


class Timing(Strict):
    """How long things take, and who waits for what."""

    compute: Annotated[Component, CHOICES["compute"]] = _chosen("compute")
    compute_per: Literal["round", "step"] = Field(
        default="round", description="whether the compute time is that of a round or of one SGD step"
    )
    jitter: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0, description="each round's compute time varies by exp(jitter * z), z normal"
    )
    wait: Annotated[Component, CHOICES["wait"]] = _chosen("wait")
    staleness: Annotated[Component, CHOICES["staleness"]] = _chosen("staleness")
    prefer: Literal["round", "newest"] = Field(
        default="round", description="of a sender's waiting messages use that of the own round, or the newest"
    )
    mailbox_per_sender: Count = Field(default=8, description="messages kept per sender; the oldest make room")
    max_time_s: Positive | None = Field(default=None, description="stop the run at this simulated time")


class EvaluationSection(Strict):
    """When models are tested, and on what."""

    every: Count = Field(
        default=5, description="rounds between evaluations; the first and last are always evaluated"
    )
    global_test: bool = Field(default=True, description="also test on the global test set")


class Output(Strict):
    """What is written."""

    folder: str = Field(default="runs", min_length=1)
    events: bool = Field(default=True, description="write events.jsonl")
    message_events: Fraction = Field(default=1.0, description="fraction of messages whose events are written")
    figures: bool = True


class Execution(Strict):
    """Where the arithmetic runs; it never changes simulated time."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Count | None = Field(
        default=None, description="torch threads; by default one for small models, else torch decides"
    )


class Scenario(Strict):
    """One experiment."""

    name: str = Field(default="scenario", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1  # what TOML can hold
    rounds: Count = Field(default=50, description="rounds of every client")
    clients: Clients = Clients()
    topology: Annotated[Component, CHOICES["topology"]] = _chosen("topology")
    data: Annotated[Component, CHOICES["data"]] = _chosen("data")
    partition: Annotated[Component, CHOICES["partition"]] = _chosen("partition")
    model: Annotated[Component, CHOICES["model"]] = _chosen("model")
    training: Training = Training()
    method: Annotated[Component, CHOICES["method"]] = _chosen("method")
    adversary: AdversarySection = AdversarySection()
    network: NetworkSection = NetworkSection()
    timing: Timing = Timing()
    evaluation: EvaluationSection = EvaluationSection()
    output: Output = Output()
    execution: Execution = Execution()

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Scenario:
        """The validated scenario, or a `ScenarioError` that lists all problems."""
        problems: list[Problem] = []
        try:
            scenario = cls.model_validate(dict(raw))
            valid = {name: getattr(scenario, name) for name in cls.model_fields}
        except ValidationError as error:
            problems = [Problem(_dotted(e["loc"]), e["msg"], e["input"]) for e in error.errors()]
            valid = dict(_valid_parts(cls, raw))
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
        raw = _read(path)
        for override in overrides:
            _override(raw, override)
        if seed is not None:
            raw["seed"] = seed
        raw.setdefault(
            "name", re.sub(r"[^A-Za-z0-9._-]|^[^A-Za-z0-9]", "-", path.stem).strip("-") or "scenario"
        )
        topology = raw.get("topology")
        if isinstance(topology, dict) and isinstance(topology.get("path"), str):
            # Relative to the scenario, not to the shell; absolute, so that a run folder's copy finds it too.
            topology["path"] = str((path.parent / Path(topology["path"]).expanduser()).resolve())
        return cls.from_dict(raw)

    def to_dict(self) -> dict[str, Any]:
        """Every option with its value, as TOML would hold it (absent values are left out)."""
        dumped = _without_none(self.model_dump(by_alias=True))
        assert isinstance(dumped, dict)
        if self.adversary.ids is not None:  # they stand in place of these
            del dumped["adversary"]["fraction"], dumped["adversary"]["placement"]
        if self.training.local_steps is not None:
            del dumped["training"]["local_epochs"]
        return dumped


def no_deadlock(network: NetworkSection, timing: Timing) -> Iterator[Problem]:
    """Waiting for messages that may be lost needs a timeout."""
    wait = timing.wait.bind()()
    lossless = network.loss.name == "none" or getattr(network.loss, "probability", None) == 0
    if wait.fraction > 0 and wait.timeout_s is None and not lossless:
        yield Problem(
            "timing.wait",
            f"'{timing.wait.name}' without timeout_s would wait for ever for a lost message (network.loss is "
            f"'{network.loss.name}'); allowed: a timeout_s, wait = 'deadline', wait = 'none', or no loss",
            timing.wait.name,
        )


def byzantine_clients_exist(clients: Clients, adversary: AdversarySection) -> Iterator[Problem]:
    """Somebody attacks if an attack is named, and somebody is honest."""
    given, ids = adversary.model_fields_set, adversary.ids
    if ids is not None:
        yield from _explicit_ids(clients, adversary, ids)
    elif floor(adversary.fraction * clients.count + 1e-9) == clients.count:
        yield Problem("adversary.fraction", "nobody would be honest; must be below 1", adversary.fraction)
    elif 0 < adversary.fraction < 1 / clients.count - 1e-9:
        allowed = f"allowed: 0, or at least 1/{clients.count}"
        yield Problem("adversary.fraction", f"is less than one client; {allowed}", adversary.fraction)
    elif adversary.attack.name != "none" and "fraction" not in given:
        message = "nobody would attack; give adversary.fraction or adversary.ids"
        yield Problem("adversary.attack", message, adversary.attack.name)


def _explicit_ids(clients: Clients, adversary: AdversarySection, ids: list[int]) -> Iterator[Problem]:
    for other in ("fraction", "placement"):
        if other in adversary.model_fields_set:
            yield Problem("adversary.ids", f"give either ids or {other}, not both", ids)
    unknown = [i for i in ids if i >= clients.count]
    if unknown:
        yield Problem("adversary.ids", f"no such clients: {unknown}; allowed: 0 to {clients.count - 1}", ids)
    if len(set(ids)) < len(ids):
        yield Problem("adversary.ids", "an id occurs twice", ids)
    elif not unknown and len(ids) == clients.count:
        yield Problem("adversary.ids", "nobody would be honest", ids)


def links_fit_into_memory(clients: Clients, topology: Component) -> Iterator[Problem]:
    """A dense graph of very many clients is refused before it is drawn."""
    density = {"complete": 1.0, "erdos_renyi": getattr(topology, "p", 0.0)}.get(topology.name, 0.0)
    num_links = density * clients.count * (clients.count - 1) / 2
    if num_links > MAX_LINKS:
        message = f"{clients.count:,} clients would have {num_links:,.0f} links; allowed: {MAX_LINKS:,}"
        yield Problem("topology", message, topology.name)


def steps_or_epochs(training: Training) -> Iterator[Problem]:
    """K is given in one way."""
    if training.local_steps is not None and "local_epochs" in training.model_fields_set:
        yield Problem(
            "training.local_steps", "give either local_steps or local_epochs, not both", training.local_steps
        )


def ranges_are_in_order(network: NetworkSection, timing: Timing) -> Iterator[Problem]:
    """low_s is not above high_s."""
    for path, component in (("network.latency", network.latency), ("timing.compute", timing.compute)):
        low, high = getattr(component, "low_s", 0), getattr(component, "high_s", 0)
        if low > high:
            yield Problem(f"{path}.low_s", f"must not be above high_s = {high}", low)


def every_client_has_a_compute_time(clients: Clients, timing: Timing) -> Iterator[Problem]:
    """An explicit list of compute times is as long as the list of clients."""
    seconds = getattr(timing.compute, "seconds", None)
    if isinstance(seconds, list) and len(seconds) != clients.count:
        yield Problem(
            "timing.compute.seconds",
            f"needs {clients.count} entries, one per client; has {len(seconds)}",
            seconds,
        )


CHECKS: list[Callable[..., Iterator[Problem]]] = [
    no_deadlock,
    byzantine_clients_exist,
    links_fit_into_memory,
    steps_or_epochs,
    ranges_are_in_order,
    every_client_has_a_compute_time,
]
"""What no single option can know. A check names the sections that it reads and runs when those are valid."""


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ScenarioError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError([Problem(str(path), f"is not valid TOML: {error}")]) from error


def _override(raw: dict[str, Any], override: str) -> None:
    """Set `path.to.key=value`; the value is TOML, or else a bare string."""
    path, equals, text = override.partition("=")
    *parents, key = path.strip().split(".")
    if not equals or not key or not all(parents):
        raise ScenarioError([Problem("--set", "must look like path.to.key=value", override)])
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = raw
    for depth, parent in enumerate(parents, start=1):
        if isinstance(table.get(parent), str):  # the short form of a component: its name
            table[parent] = {"name": table[parent]}
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ScenarioError(
                [Problem(".".join(parents[:depth]), "is not a table, so --set cannot go into it", table)]
            )
    table[key] = value


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


def _dotted(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
