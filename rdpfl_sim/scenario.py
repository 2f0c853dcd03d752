"""A scenario: one TOML file, one experiment. Data, never code."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import floor
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from rdpfl_sim.errors import OptionError, Problem, ScenarioError
from rdpfl_sim.learning.datasets import DATASETS
from rdpfl_sim.learning.models import MODELS
from rdpfl_sim.learning.partition import PARTITIONS
from rdpfl_sim.maths.attacks import ATTACKS
from rdpfl_sim.maths.equivocation import EQUIVOCATIONS
from rdpfl_sim.methods import METHODS
from rdpfl_sim.options import (
    LARGE,
    ClientSet,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Probability,
    client_ids,
)
from rdpfl_sim.registry import Component, OneOf, Strict
from rdpfl_sim.world.adversary import Level
from rdpfl_sim.world.attack_schedules import SCHEDULES
from rdpfl_sim.world.bandwidth import BANDWIDTHS
from rdpfl_sim.world.distributions import COMPUTE, LATENCIES
from rdpfl_sim.world.faults import FAULTS, may_lose_messages
from rdpfl_sim.world.geography import GEOGRAPHIES
from rdpfl_sim.world.links import LOSSES
from rdpfl_sim.world.placement import PLACEMENTS
from rdpfl_sim.world.timing_attacks import TIMING_ATTACKS
from rdpfl_sim.world.topology import TOPOLOGIES
from rdpfl_sim.world.transport import TRANSPORTS
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
        OneOf("timing_attack", TIMING_ATTACKS, "none"),
        OneOf("attack_schedule", SCHEDULES, "always"),
        OneOf("equivocation", EQUIVOCATIONS, "none"),
        OneOf("placement", PLACEMENTS, "random"),
        OneOf("latency", LATENCIES, "constant"),
        OneOf("geography", GEOGRAPHIES, "none"),
        OneOf("loss", LOSSES, "none"),
        OneOf("bandwidth", BANDWIDTHS, "unlimited"),
        OneOf("transport", TRANSPORTS, "datagram"),
        OneOf("fault", FAULTS),
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
    """A group of Byzantine clients: who they are, what they know, what they send and when."""

    attack: Annotated[Component, CHOICES["attack"]] = _chosen("attack")
    timing: Annotated[Component, CHOICES["timing_attack"]] = _chosen("timing_attack")
    schedule: Annotated[Component, CHOICES["attack_schedule"]] = _chosen("attack_schedule")
    equivocation: Annotated[Component, CHOICES["equivocation"]] = _chosen("equivocation")
    knowledge: Level = Field(
        default="omniscient",
        description="whose updates attackers see: their own, what reaches them as messages, all honest ones",
    )
    collude: bool = Field(default=True, description="whether the group shares what its members know")
    fraction: Fraction = Field(default=0.0, description="of the clients, rounded down to whole clients")
    ids: ClientSet | None = Field(
        default=None, description="explicit ids, in place of fraction and placement"
    )
    placement: Annotated[Component, CHOICES["placement"]] = _chosen("placement")
    patience_s: Positive | None = Field(
        default=None,
        description="how long an attacker waits for updates that it wants to see; by default half the "
        "timeout of timing.wait, or as long as it takes if there is none",
    )


class LinkSection(Strict):
    """Links that are different from the others."""

    from_: ClientSet = Field(alias="from", description="the senders")
    to: ClientSet = Field(description="the recipients")
    both_ways: bool = Field(default=True, description="whether it also holds in the other direction")
    latency: Annotated[Component | None, CHOICES["latency"].optional()] = None
    loss: Annotated[Component | None, CHOICES["loss"].optional()] = None


class NetworkSection(Strict):
    """What happens to messages on their way."""

    latency: Annotated[Component, CHOICES["latency"]] = _chosen("latency")
    geography: Annotated[Component, CHOICES["geography"]] = _chosen("geography")
    loss: Annotated[Component, CHOICES["loss"]] = _chosen("loss")
    duplication: Probability = Field(default=0.0, description="probability that a message arrives twice")
    bandwidth: Annotated[Component, CHOICES["bandwidth"]] = _chosen("bandwidth")
    compression: Annotated[float, Field(ge=1, le=LARGE)] = Field(
        default=1.0, description="declared ratio: messages are so many times smaller, their values unchanged"
    )
    transport: Annotated[Component, CHOICES["transport"]] = _chosen("transport")
    links: list[LinkSection] = Field(default=[], description="exceptions for some links; a later one counts")


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
    telemetry: bool = Field(
        default=True, description="find out distance and weight of every message that is used"
    )


class Execution(Strict):
    """Where the arithmetic runs; it never changes simulated time."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Count | None = Field(
        default=None, description="torch threads; by default one for small models, two for others"
    )


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, Mapping | AdversarySection) else value


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
    execution: Execution = Execution()

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Scenario:
        """The validated scenario, or a `ScenarioError` that lists all problems."""
        problems: list[Problem] = []
        try:
            scenario = cls.model_validate(dict(raw))
            valid = {name: getattr(scenario, name) for name in cls.model_fields}
        except ValidationError as error:
            problems = problems_of(raw, error)
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
        raw = read_toml(path)
        for override in overrides:
            apply_override(raw, override)
        if seed is not None:
            raw["seed"] = seed
        raw.setdefault(
            "name", re.sub(r"[^A-Za-z0-9._-]|^[^A-Za-z0-9]", "-", path.stem).strip("-") or "scenario"
        )
        make_paths_absolute(raw, path.parent)
        return cls.from_dict(raw)

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
        return dumped


def no_deadlock(
    network: NetworkSection, timing: Timing, adversary: list[AdversarySection], faults: list[Component]
) -> Iterator[Problem]:
    """Waiting for messages that may never come needs a timeout."""
    wait = timing.wait.bind()()
    if wait.fraction == 0 or wait.timeout_s is not None:
        return
    for path, cause in _why_messages_may_be_missing(network, adversary, faults):
        message = (
            f"'{timing.wait.name}' without timeout_s would wait for ever for a message that does not come "
            f"({path} is '{cause}'); allowed: a timeout_s, wait = 'deadline', wait = 'none'"
        )
        yield Problem("timing.wait", message, timing.wait.name)
        return


def _why_messages_may_be_missing(
    network: NetworkSection, adversary: list[AdversarySection], faults: list[Component]
) -> Iterator[tuple[str, str]]:
    losses = {"network.loss": network.loss}
    losses |= {f"network.links[{i}].loss": link.loss for i, link in enumerate(network.links) if link.loss}
    for path, loss in losses.items():
        chances = [value for key, value in loss if key in ("probability", "loss_calm", "loss_burst")]
        if loss.name != "none" and (any(chances) or not chances):
            yield path, loss.name
    for place, group in enumerate(adversary):
        if getattr(type(group.timing).target, "keeps_waiting", False):
            yield f"{_group_path(adversary, place)}.timing", group.timing.name
    for place, fault in enumerate(faults):
        if may_lose_messages(type(fault).target):
            yield f"faults[{place}]", fault.name


def byzantine_clients_exist(clients: Clients, adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Somebody attacks if an attack is named, somebody is honest, and nobody belongs to two groups."""
    taken: set[int] = set()
    num_byzantine = 0
    for place, group in enumerate(adversary):
        path = _group_path(adversary, place)
        if group.ids is not None:
            for other in ("fraction", "placement"):
                if other in group.model_fields_set:
                    yield Problem(f"{path}.ids", f"give either ids or {other}, not both", group.ids)
            try:
                ids = client_ids("ids", group.ids, clients.count) if group.ids else ()
            except OptionError as error:
                yield Problem(f"{path}.ids", error.message, group.ids)
                continue
            if taken.intersection(ids):
                yield Problem(f"{path}.ids", "a client belongs to two groups", group.ids)
            taken.update(ids)
            num_byzantine += len(ids)
        elif 0 < group.fraction < 1 / clients.count - 1e-9:
            allowed = f"allowed: 0, or at least 1/{clients.count}"
            yield Problem(f"{path}.fraction", f"is less than one client; {allowed}", group.fraction)
        elif "fraction" not in group.model_fields_set and _attacks(group):
            key = next(
                key for key in ("attack", "timing", "equivocation") if getattr(group, key).name != "none"
            )
            yield Problem(
                f"{path}.{key}", "nobody would attack; give fraction or ids", getattr(group, key).name
            )
        else:
            num_byzantine += num_of(group.fraction, clients.count)
    if num_byzantine >= clients.count:
        option = "ids" if adversary[-1].ids is not None else "fraction"
        value = getattr(adversary[-1], option)
        yield Problem(
            f"{_group_path(adversary, len(adversary) - 1)}.{option}", "nobody would be honest", value
        )


def num_of(fraction: float, num_clients: int) -> int:
    """So many clients are this fraction, rounded down; the slack is for products such as 0.29 * 100."""
    return floor(fraction * num_clients + 1e-9)


def _attacks(group: AdversarySection) -> bool:
    return any(component.name != "none" for component in (group.attack, group.timing, group.equivocation))


def _group_path(adversary: list[AdversarySection], place: int) -> str:
    return "adversary" if len(adversary) == 1 else f"adversary[{place}]"


def just_in_time_for_a_deadline(timing: Timing, adversary: list[AdversarySection]) -> Iterator[Problem]:
    """An attacker can only be just in time if its victims have a deadline."""
    if timing.wait.bind()().timeout_s is not None:
        return
    for place, group in enumerate(adversary):
        if group.timing.name == "just_in_time":
            message = "needs a timing.wait with a timeout_s, or 'deadline'"
            yield Problem(f"{_group_path(adversary, place)}.timing", message, group.timing.name)


def victims_exist(clients: Clients, adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Whoever is to hear nothing takes part."""
    for place, group in enumerate(adversary):
        victims = getattr(group.timing, "victims", None)
        try:
            if victims is not None:
                client_ids("victims", victims, clients.count)
        except OptionError as error:
            yield Problem(f"{_group_path(adversary, place)}.timing.victims", error.message, victims)


def schedules_are_possible(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """An attack ends after it begins."""
    for place, group in enumerate(adversary):
        window = group.schedule
        for low, high in (("from_round", "until_round"), ("from_s", "until_s")):
            end = getattr(window, high, None)
            if end is not None and end <= getattr(window, low) - (low == "from_round"):
                path = f"{_group_path(adversary, place)}.schedule.{high}"
                yield Problem(path, f"must be after {low} = {getattr(window, low)}", end)


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
    for path, component in (
        ("network.latency", network.latency),
        ("network.geography", network.geography),
        ("timing.compute", timing.compute),
        *((f"network.links[{place}].latency", link.latency) for place, link in enumerate(network.links)),
    ):
        low, high = getattr(component, "low_s", 0), getattr(component, "high_s", 0)
        if low > high:
            yield Problem(f"{path}.low_s", f"must not be above high_s = {high}", low)


def exceptions_say_something(network: NetworkSection) -> Iterator[Problem]:
    """An exception for some links changes something about them."""
    for place, link in enumerate(network.links):
        if link.latency is None and link.loss is None:
            yield Problem(f"network.links[{place}]", "changes nothing; give latency, loss or both")


def equivocations_are_in_order(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """low is not above high."""
    for place, group in enumerate(adversary):
        low, high = getattr(group.equivocation, "low", 0), getattr(group.equivocation, "high", 0)
        if low > high:
            path = f"{_group_path(adversary, place)}.equivocation.low"
            yield Problem(path, f"must not be above high = {high}", low)


def silence_is_given_in_one_way(adversary: list[AdversarySection]) -> Iterator[Problem]:
    """Either the victims are named, or a fraction of them."""
    for place, group in enumerate(adversary):
        victims = getattr(group.timing, "victims", None)
        if victims is not None and "fraction" in group.timing.model_fields_set:
            path = f"{_group_path(adversary, place)}.timing.victims"
            yield Problem(path, "give either victims or fraction, not both", victims)


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
    just_in_time_for_a_deadline,
    victims_exist,
    silence_is_given_in_one_way,
    equivocations_are_in_order,
    exceptions_say_something,
    schedules_are_possible,
    links_fit_into_memory,
    steps_or_epochs,
    ranges_are_in_order,
    every_client_has_a_compute_time,
]
"""What no single option can know. A check names the sections that it reads and runs when those are valid."""


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file, or a `ScenarioError` that says why there is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ScenarioError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError([Problem(str(path), f"is not valid TOML: {error}")]) from error


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Set `path.to.key=value`; the value is TOML, or else a bare string."""
    path, equals, text = override.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise ScenarioError([Problem("--set", "must look like path.to.key=value", override)])
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    set_value(raw, path.strip(), value)


def set_value(raw: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path, making tables on the way."""
    *parents, key = _steps(path)
    table: Any = raw
    for depth, step in enumerate(parents, start=1):
        following = table.setdefault(step, {}) if isinstance(table, dict) else table[step]
        if isinstance(following, str):  # the short form of a component: its name
            following = table[step] = {"name": following}
        wanted = [*parents, key][depth]
        fits = isinstance(following, list) if isinstance(wanted, int) else isinstance(following, dict)
        if not fits or (isinstance(wanted, int) and wanted >= len(following)):
            kind = f"has no entry [{wanted}]" if isinstance(wanted, int) else "is not a table"
            message = f"{kind}, so {path} cannot be set"
            raise ScenarioError([Problem(_dotted(tuple(parents[:depth])), message, following)])
        table = following
    table[key] = value


def _steps(path: str) -> list[str | int]:
    """The keys and indices of a path.

    >>> _steps("faults[0].at_s")
    ['faults', 0, 'at_s']
    """
    steps: list[str | int] = []
    for part in path.split("."):
        name, *indices = part.replace("]", "").split("[")
        steps += [name, *(int(index) if index.isdigit() else index for index in indices)]
    return steps


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


def make_paths_absolute(raw: dict[str, Any], folder: Path) -> None:
    """Files are named relative to the scenario, not to the shell; a run folder's copy must find them too."""
    faults = raw.get("faults", [])
    faults = [fault for fault in faults if isinstance(fault, dict)] if isinstance(faults, list) else []
    for table in (raw.get("topology"), *faults, *(fault.get("topology") for fault in faults)):
        if isinstance(table, dict) and isinstance(table.get("path"), str):
            table["path"] = str((folder / Path(table["path"]).expanduser()).resolve())


def problems_of(raw: Mapping[str, Any], error: ValidationError) -> list[Problem]:
    """What is wrong with a table, in our words."""
    return [Problem(_path(raw, e["loc"]), e["msg"], e["input"]) for e in error.errors()]


def _path(raw: Mapping[str, Any], location: tuple[int | str, ...]) -> str:
    """The TOML path of an error; a single group of attackers is a table, not a list."""
    if location[:2] == ("adversary", 0) and isinstance(raw["adversary"], Mapping):
        location = ("adversary", *location[2:])
    return _dotted(location)


def _dotted(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value
