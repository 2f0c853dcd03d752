"""Random scenarios, generated from the schema: a new component is included as soon as it is registered.

Bounds, choices and lengths come from the types of the options. `LIMITS` keeps runs small. `ADJUSTMENTS` has
the constraints that a type cannot express: a regular graph of five clients must have an even degree. A
scenario can be required to use one component of some kinds; everything else is random.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import combinations, count
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

from rdpfl_sim import Scenario, ScenarioError
from rdpfl_sim.components.options import LARGE, ClientSet, NonNegative, Positive
from rdpfl_sim.components.schema import OneOf, Strict
from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.datasets.download import CLASSES
from rdpfl_sim.randomness import Streams
from rdpfl_sim.scenario.component_list import KINDS
from rdpfl_sim.scenario.sections import CHOICES, AdversarySection
from rdpfl_sim.world.faults.fault import MeanTime

Table = dict[str, Any]

LIMITS = {
    "num_train": (40, 80),
    "num_test": (1, 10),
    "num_classes": (1, 4),
    "min_samples": (1, 2),
    "per_client": (1, 4),
    "shape": (1, 4),
    "local_epochs": (1, 1000),
    "local_steps": (1, 1000),
    "hidden": (1, 3),
    "width": (2, 3),
    "copies": (1, 20),
    "max_attempts": (2, 6),
    "iterations": (1, 200),
}
"""Bounds of integers that cost memory or time; these options are always set."""

COMMON_TIMES = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
"""Times that often coincide, because simultaneous events are a common source of bugs."""

EXTREMES = (0.0, 5e-324, 1e-300, 1e-40, 1e-30, 1e-9, 1e9)
"""Numbers for which arithmetic may fail, in addition to the bounds of an option."""

LARGEST_INTEGER = 2**63 - 1  # of TOML

ODD_CHARACTERS = "aZ9 _-.\"'\\\t\n\x7f\u00e4\u2028\U0001f600#=[]{}"

_CLIENT_SET = get_args(ClientSet)[1]
_RECURRING = get_args(MeanTime)[1]


@dataclass(frozen=True)
class RandomScenario:
    """A scenario as a table, with the files that it names."""

    scenario: Table
    files: dict[str, str | bytes]
    odd_messages: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Messages to forge: recipient, sender, round, kind."""
    heal_at_s: float | None = None
    """The time at which all faults end, if they do."""


@dataclass
class ScenarioGenerator:
    """Draws tables and their options for a number of clients and a span of simulated time."""

    random: Random
    num_clients: int
    span_s: float
    wild: bool
    """Whether some numbers are drawn from the limits of their types."""
    required: Mapping[str, str] = field(default_factory=dict)
    """The component that the scenario must use, by kind."""
    files: dict[str, str | bytes] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)
    """Links of the topology, when it has been drawn."""
    recurs: bool = False
    """Whether a fault recurs, so that the run needs a time limit."""

    def chance(self, times: int, of: int) -> bool:
        """Return True with the probability times / of."""
        return self.random.randrange(of) < times

    def pick(self, values: Iterable[Any]) -> Any:
        """Return one of the values."""
        return self.random.choice(list(values))

    def some_clients(self, among: Sequence[int] | None = None) -> list[int]:
        """Return at least one of these clients (default: all), in any order."""
        return self.sample(range(self.num_clients) if among is None else among)

    def sample(self, values: Sequence[Any]) -> list[Any]:
        """Return at least one of the values, in any order."""
        return self.random.sample(values, self.random.randint(1, len(values)))

    def table(self, model: type[Strict], *but: str) -> Table:
        """Return a table with random options, some of them omitted; without the keys `but`."""
        table: Table = {}
        for name, info in model.model_fields.items():
            key = info.alias or name
            if key in but or name == "name":
                continue
            costly = key in LIMITS and info.default is not None
            if not (info.is_required() or costly or self.chance(2, of=3)):
                continue
            hint = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
            value = self.value(hint, key, info.default)
            if value is not None:
                table[key] = value
        for one, other in EXCLUSIVE:
            if one in table:
                table.pop(other, None)
        for low, high in ORDERED:
            if {low, high} & table.keys() and {low, high} <= set(model.keys()):
                self.order(table, low, high, model)
        return table

    def component(self, choice: OneOf) -> Table:
        """Return one of the components with random options."""
        name = self.required.get(choice.kind) or self.pick(ONLY.get(choice.kind) or choice.names())
        table = {"name": name, **self.table(choice.table(name))}
        adjust = ADJUSTMENTS.get((choice.kind, name))
        if adjust is not None:
            adjust(self, table)
        return table

    def value(self, hint: Any, key: str, default: Any = None) -> Any:
        """Return a value of an option; None omits it."""
        base, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        kind, inner = get_origin(base), get_args(base)
        choice = next((mark for mark in marks if isinstance(mark, OneOf)), None)
        if choice is not None:
            return self.component(choice)
        if _CLIENT_SET in marks:
            return self.client_set(self.some_clients())
        if kind in (Union, types.UnionType):
            return self.value(self.pick(arg for arg in inner if arg is not type(None)), key, default)
        if kind is Literal:
            return self.pick(inner)
        if kind is not None and issubclass(kind, Sequence):
            shortest = max([0, *(mark.min_length for mark in marks if isinstance(mark, MinLen))])
            longest = min([3, *(mark.max_length for mark in marks if isinstance(mark, MaxLen))])
            return [self.value(inner[0], key) for _ in range(self.random.randint(shortest, longest))]
        if base is bool:
            return self.chance(1, of=2)
        if base is int:
            return self.integer(key, marks)
        if base is float:
            return self.number(key, marks, default)
        if isinstance(base, type) and issubclass(base, Strict):
            return self.table(base)
        assert base is str, f"{key}: the fuzzer cannot draw a {base}"
        if key == "notes":
            return "".join(self.pick(ODD_CHARACTERS) for _ in range(self.random.randrange(20)))
        return None  # names and paths are set by `ADJUSTMENTS`

    def integer(self, key: str, marks: Sequence[Any]) -> int:
        """Return a small integer, or sometimes any that is allowed."""
        low, high, _, _ = bounds(marks, -LARGEST_INTEGER, LARGEST_INTEGER)
        if key in LIMITS:
            return self.random.randint(*LIMITS[key])
        if self.wild and self.chance(1, of=6):
            return self.pick([low, high, self.random.randint(low, high)])
        least = max(low, -3)
        return self.random.randint(least, min(high, least + 6))

    def number(self, key: str, marks: Sequence[Any], default: Any) -> Any:
        """Return a number near the default, a common time, or sometimes an extreme number."""
        low, high, above, below = bounds(marks, -LARGE, LARGE)

        def allowed(value: float) -> bool:
            return low <= value <= high and not (above and value == low) and not (below and value == high)

        if _RECURRING in marks:  # rarely enough that a run ends
            self.recurs = True
            return self.span_s * self.random.uniform(0.05, 2.0)
        if self.wild and self.chance(1, of=6):
            return self.pick(filter(allowed, sorted({low, high, *EXTREMES, *(-x for x in EXTREMES)})))
        is_time = key.endswith("_s") or key == "seconds"
        if is_time and self.chance(1, of=2):
            return self.pick(filter(allowed, COMMON_TIMES))
        usual = default if isinstance(default, float) and default > 0 else 1.0
        least, most = max(low, usual / 10), min(high, usual * 10)
        drawn = (self.pick([least, most, self.random.uniform(least, most)]) for _ in count())
        return next(filter(allowed, drawn))

    def client_set(self, clients: Sequence[int]) -> list[int] | str:
        """Return a set of clients as a list or as a string."""
        if self.chance(1, of=2):
            return list(clients)
        first, last = min(clients), max(clients)
        if sorted(clients) == list(range(first, last + 1)):
            return f"{first}..{last}"
        return ", ".join(map(str, clients))

    def order(self, table: Table, low: str, high: str, model: type[Strict]) -> None:
        """Swap two options if the first is above the second; remove an end that equals its start."""
        start = table.get(low, model.model_fields[low].default)
        end = table.get(high, model.model_fields[high].default)
        if end is None:
            return
        table[low], table[high] = min(start, end), max(start, end)
        if start == end and high.startswith("until"):
            del table[high]


def bounds(marks: Sequence[Any], low: Any, high: Any) -> tuple[Any, Any, bool, bool]:
    """Return the smallest and largest value that annotations allow, and whether each is excluded."""
    above = below = False
    for mark in marks:
        match mark:
            case Ge(ge=value) if value > low:
                low, above = value, False
            case Gt(gt=value) if value >= low:
                low, above = value, True
            case Le(le=value) if value < high:
                high, below = value, False
            case Lt(lt=value) if value <= high:
                high, below = value, True
    return low, high, above, below


EXCLUSIVE = (("local_steps", "local_epochs"), ("victims", "fraction"), ("sizes", "num"))
"""Pairs of options that exclude each other."""

ORDERED = (("low", "high"), ("low_s", "high_s"), ("from_s", "until_s"), ("from_round", "until_round"))
"""Pairs of options in which the first must not be above the second."""

ONLY = {"data": ["synthetic"], "model": ["softmax", "mlp", "cnn", "resnet"], "executor": ["inline"]}
"""Kinds from which only these components are drawn, because others cost time, unless one is required."""


def divisor(generator: ScenarioGenerator, table: Table) -> None:
    """Make the number of rows divide the number of clients."""
    if "rows" in table:
        table["rows"] = generator.pick(r for r in range(1, 9) if generator.num_clients % r == 0)


def k_regular(generator: ScenarioGenerator, table: Table) -> None:
    """k < n, and n k is even."""
    n = generator.num_clients
    table["k"] = generator.pick([k for k in range(1, n) if n * k % 2 == 0] or [1])


def small_world(generator: ScenarioGenerator, table: Table) -> None:
    """k < n is even."""
    table["k"] = generator.pick(range(2, max(3, generator.num_clients), 2))


def scale_free(generator: ScenarioGenerator, table: Table) -> None:
    """m < n."""
    table["m"] = generator.pick(range(1, max(2, generator.num_clients)))


def communities(generator: ScenarioGenerator, table: Table) -> None:
    """Sizes add up to the number of clients; or there are at most as many communities."""
    n = generator.num_clients
    if "sizes" in table:
        first = generator.pick(range(1, n + 1))
        table["sizes"] = [first, *([1] * (n - first))]
    elif "num" in table:
        table["num"] = generator.pick(range(1, n + 1))


def graph_file(generator: ScenarioGenerator, table: Table) -> None:
    """An edge list over the clients."""
    pairs = list(combinations(range(generator.num_clients), 2)) or [(0, 0)]
    links = generator.sample(pairs)
    table["path"] = f"graph{len(generator.files)}.txt"
    table["format"] = generator.pick(["auto", "edgelist"])
    generator.files[table["path"]] = "".join(f"{i} {j}\n" for i, j in links)


def synthetic(generator: ScenarioGenerator, table: Table) -> None:
    """Vectors or images."""
    table["shape"] = generator.pick([[2], [3], [1, 2, 2], [2, 4, 5]])


def image_file(generator: ScenarioGenerator, table: Table) -> None:
    """Write a file with a few random images, under the name of the data set."""
    draw = np.random.default_rng(generator.random.randrange(2**32))
    images = {f"x_{part}": draw.integers(0, 256, (num, 1, 4, 4), np.uint8) for part, num in SIZES.items()}
    labels = {f"y_{part}": np.arange(num) % 3 for part, num in SIZES.items()}
    file = BytesIO()
    np.savez(file, **images, **labels)
    table |= {"path": "npz.npz", "layout": "NCHW"} if table["name"] == "npz" else {"folder": "."}
    for key, part in (("subset", "train"), ("subset_test", "test")):
        if key in table:
            table[key] = generator.random.randint(3, SIZES[part])
    generator.files[f"{table['name']}.npz"] = file.getvalue()


SIZES = {"train": 60, "test": 9}
"""Numbers of images in files."""


def step_coefficient(generator: ScenarioGenerator, table: Table) -> None:
    """A coefficient belongs to step = 'local'."""
    if table.get("step", "local") != "local":
        table.pop("coefficient", None)


def regions(generator: ScenarioGenerator, table: Table) -> None:
    """A square matrix, and a region for every client."""
    size = generator.pick(range(1, 4))
    table["delays_s"] = [[generator.value(NonNegative, "delays_s") for _ in range(size)] for _ in range(size)]
    if "members" in table:
        table["members"] = [generator.pick(range(size)) for _ in range(generator.num_clients)]


def compute_times(generator: ScenarioGenerator, table: Table) -> None:
    """A compute time for every client."""
    table["seconds"] = [generator.value(Positive, "seconds") for _ in range(generator.num_clients)]


def clients_or_fraction(generator: ScenarioGenerator, table: Table) -> None:
    """Set clients or a fraction; keep recovery options only if the clients recover."""
    if "clients" in table:
        table.pop("fraction", None)
    else:
        table["fraction"] = generator.random.uniform(1 / generator.num_clients, 1.0)
    if table["name"] == "crash" and "recover_after_s" not in table:
        remove_recovery_options(table)


def random_crashes(generator: ScenarioGenerator, table: Table) -> None:
    """Keep recovery options only if the clients recover."""
    if "mean_time_to_recover_s" not in table:
        remove_recovery_options(table)


def remove_recovery_options(table: Table) -> None:
    """Remove the options that describe how clients recover."""
    for key in ("state", "catch_up"):
        table.pop(key, None)


def random_partitions(generator: ScenarioGenerator, table: Table) -> None:
    """Put at least one client on the smaller side."""
    if "fraction" in table:
        table["fraction"] = generator.random.uniform(min(0.5, 1 / generator.num_clients), 0.5)


def partition_fault(generator: ScenarioGenerator, table: Table) -> None:
    """Draw disjoint sides; if there is one, at least one client remains on the other."""
    one, *rest = generator.random.sample(range(generator.num_clients), generator.num_clients)
    cut = generator.pick(range(max(1, len(rest))))
    table["sides"] = [generator.client_set([one, *rest[:cut]])]
    if rest[cut:] and generator.pick([False, True]):
        table["sides"].append(generator.client_set(generator.some_clients(rest[cut:])))


def link_outage(generator: ScenarioGenerator, table: Table) -> None:
    """Draw links of the topology, in either direction."""
    links = generator.sample(generator.edges or [(0, 0)])
    table["links"] = [list(link)[:: generator.pick([1, -1])] for link in links]


def churn_trace(generator: ScenarioGenerator, table: Table) -> None:
    """Write a trace in which clients go down and up in turns."""
    rows = []
    for client in generator.some_clients():
        up = generator.chance(1, of=2)
        time_s = 0.0
        for _ in range(generator.pick(range(1, 5))):
            time_s += generator.pick(COMMON_TIMES)
            rows.append(f"{time_s!r},{client},{generator.pick(['up', 'fresh']) if up else 'down'}\n")
            up = not up
    table["path"] = f"trace{len(generator.files)}.csv"
    generator.files[table["path"]] = "time_s,client,state\n" + "".join(rows)


ADJUSTMENTS: dict[tuple[str, str], Callable[[ScenarioGenerator, Table], None]] = {
    ("topology", "grid"): divisor,
    ("topology", "torus"): divisor,
    ("topology", "k_regular"): k_regular,
    ("topology", "small_world"): small_world,
    ("topology", "scale_free"): scale_free,
    ("topology", "communities"): communities,
    ("topology", "file"): graph_file,
    ("data", "synthetic"): synthetic,
    ("data", "npz"): image_file,
    **{("data", name): image_file for name in CLASSES},
    ("method", "rdpfl"): step_coefficient,
    ("method", "direct"): step_coefficient,
    ("geography", "regions"): regions,
    ("compute", "list"): compute_times,
    ("fault", "partition"): partition_fault,
    ("fault", "random_partitions"): random_partitions,
    ("fault", "link_outage"): link_outage,
    ("fault", "crash"): clients_or_fraction,
    ("fault", "random_crashes"): random_crashes,
    ("fault", "late_join"): clients_or_fraction,
    ("fault", "leave"): clients_or_fraction,
    ("fault", "slow_down"): clients_or_fraction,
    ("fault", "churn_trace"): churn_trace,
}
"""Functions that make a drawn table valid, by kind and name."""


GIVEN = (
    *("name", "rounds", "clients", "topology", "data", "partition", "model", "adversary", "faults"),
    "execution",
)
"""Sections that `random_scenario` sets itself, or that do not affect a run."""


def random_scenario(
    seed: int, required: Mapping[str, str] | None = None, heals: bool = False
) -> RandomScenario:
    """Return a small scenario that uses the required components, by kind; most of them are valid."""
    random = Random(seed)
    generator = ScenarioGenerator(
        random,
        num_clients=random.randint(1, 8) if random.randrange(4) == 0 else random.randint(4, 8),
        span_s=random.uniform(2.0, 40.0),
        wild=random.randrange(4) == 0,
        required=required or {},
    )
    scenario = generator.table(Scenario, *GIVEN)
    scenario["rounds"] = random.randint(1, 6)
    scenario["clients"] = {"count": generator.num_clients}
    for kind in ("topology", "data", "partition", "model"):
        scenario[kind] = generator.component(CHOICES[kind])
    for kind, (section, key) in PLACES.items():
        if kind in generator.required:
            table = scenario.setdefault(section, {}) if section else scenario
            table[key] = generator.component(CHOICES[kind])
    require_aggregator(generator, scenario)
    for link in scenario.get("network", {}).get("links", []):
        if not {"latency", "loss"} & link.keys():
            link["loss"] = generator.component(CHOICES["loss"])
    if scenario["model"]["name"] in ("cnn", "resnet", "torchvision"):
        scenario["data"]["shape"] = [1, 4, 4]
    fit_model_to_method(generator, scenario)
    fit_training_to_method(scenario)
    fit_validation(generator, scenario)
    scenario["adversary"] = adversary_groups(generator)
    generator.edges = edges(generator, scenario["topology"], scenario.get("seed", 1))
    scenario["faults"] = faults(generator)
    timing = scenario.setdefault("timing", {})
    if generator.recurs:
        timing["max_time_s"] = generator.span_s
    if needs_a_timeout(scenario):
        wait = generator.required.get("wait") or generator.pick(["all", "quorum"])
        if "timeout_s" in CHOICES["wait"].table(wait).model_fields:
            timing["wait"] = {"name": wait, "timeout_s": generator.pick([0.5, 1.0])}
    if heals:
        scenario["rounds"] = random.randint(4, 8)
        scenario.setdefault("output", {})["events"] = True
        return RandomScenario(scenario, generator.files, heal_at_s=random.uniform(0.5, 4.0))
    return RandomScenario(scenario, generator.files, odd_messages(generator, scenario["rounds"]))


def places(model: type[Strict], section: str = "") -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the kind of every component that a section of a scenario has once, and its section and key."""
    for name, info in model.model_fields.items():
        key = info.alias or name
        choice = next((mark for mark in info.metadata if isinstance(mark, OneOf)), None)
        if choice is not None:
            yield choice.kind, (section, key)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, Strict):
            yield from places(info.annotation, key)


PLACES = dict(places(Scenario))
"""The section and the key of every kind of component that a scenario has exactly once."""


def options_with(kind: str, choice: OneOf, name: str) -> dict[str, bool]:
    """Return the options of a component that are components of a kind, and whether they are lists."""
    return {
        info.alias or key: isinstance(info.default, list)
        for key, info in choice.table(name).model_fields.items()
        if any(mark.kind == kind for mark in marks_in(Annotated[info.annotation, *info.metadata, None]))
    }


def marks_in(hint: Any) -> Iterator[OneOf]:
    """Yield the kinds of components that an annotation names, at any depth."""
    for part in get_args(hint):
        if isinstance(part, OneOf):
            yield part
        else:
            yield from marks_in(part)


def require_aggregator(generator: ScenarioGenerator, scenario: Table) -> None:
    """Give the method the components that it is required to use, as options."""
    for kind in generator.required.keys() - CHOICES.keys():
        names = CHOICES["method"].usable_names()
        able = [name for name in names if options_with(kind, CHOICES["method"], name)]
        required = generator.required.get("method")
        method = scenario.setdefault("method", {"name": required or generator.pick(able)})
        if method["name"] not in able and required is None:
            method.clear()
            method["name"] = generator.pick(able)
        for key, is_list in options_with(kind, CHOICES["method"], method["name"]).items():
            component = generator.component(KINDS[kind])
            method[key] = [component] if is_list else component


def faults(generator: ScenarioGenerator) -> list[Table]:
    """Draw up to four faults; a required one is the first."""
    drawn = [generator.component(CHOICES["fault"])] if "fault" in generator.required else []
    generator.required = {kind: name for kind, name in generator.required.items() if kind != "fault"}
    num_faults = generator.pick(range(len(drawn), 4 if generator.wild else 3))
    return drawn + [generator.component(CHOICES["fault"]) for _ in range(num_faults)]


def fit_model_to_method(generator: ScenarioGenerator, scenario: Table) -> None:
    """Give FedPer a model with more layers than its head."""
    method, model = scenario.get("method", {}), scenario["model"]
    if method.get("name") == "fedper":
        if model["name"] == "softmax" or model.get("hidden") == []:
            model.clear()
            model.update(name="mlp", hidden=[2])
        deep = {"cnn": 5, "resnet": 8}
        num_layers = deep.get(model["name"]) or 1 + len(model.get("hidden", [64]))
        method["head_layers"] = generator.pick(range(1, num_layers))


def fit_validation(generator: ScenarioGenerator, scenario: Table) -> None:
    """Leave every client an example for training; save the best models only with validation examples."""
    evaluation, output = scenario.get("evaluation", {}), scenario.get("output", {})
    if evaluation.get("validation_fraction"):
        evaluation["validation_fraction"] = generator.random.uniform(0.01, 0.5)
        scenario["partition"]["min_samples"] = 2
    elif output.get("models") == "best":
        output["models"] = "final"


def fit_training_to_method(scenario: Table) -> None:
    """Remove settings that need others, and bfloat16: it is native, and a process has one arithmetic."""
    training = scenario.get("training", {})
    training.pop("precision", None)
    if not training.get("momentum") or scenario.get("method", {}).get("name") == "dfedavgm":
        training.pop("momentum_over_rounds", None)
    if scenario.get("evaluation", {}).get("theory"):
        for option in ("schedule", "momentum", "momentum_over_rounds", "clip_gradient"):
            training.pop(option, None)


def odd_messages(generator: ScenarioGenerator, rounds: int) -> list[tuple[int, int, int, int]]:
    """Draw some invalid messages; indices are taken modulo the number of clients and kinds."""
    if generator.chance(2, of=3):
        return []
    draw = generator.random.randint
    return [(draw(0, 7), draw(0, 7), draw(-1, rounds + 1), draw(0, 99)) for _ in range(draw(1, 12))]


def adversary_groups(generator: ScenarioGenerator) -> list[Table] | Table:
    """Draw groups of attackers that leave at least one client honest."""
    drawn: list[Table] = []
    free = generator.random.sample(range(generator.num_clients), generator.num_clients)[1:]
    is_required = any(kind in generator.required for kind, _ in places(AdversarySection))
    for number in range(generator.pick(range(1 if is_required else 0, 4))):
        group = generator.table(AdversarySection, "ids", "fraction")
        for kind, (_, key) in places(AdversarySection):
            if kind in generator.required:
                group[key] = generator.component(CHOICES[kind])
        size = generator.pick(range(1 if is_required and number == 0 else 0, len(free) + 1) or [0])
        if generator.chance(1, of=2) and "placement" not in generator.required:
            group["ids"] = generator.client_set(free[:size]) if size else []
            group.pop("placement", None)
        else:
            group["fraction"] = size / generator.num_clients
        free = free[size:]
        drawn.append(group)
    return drawn[0] if len(drawn) == 1 and generator.chance(1, of=2) else drawn


def edges(generator: ScenarioGenerator, topology: Table, seed: int) -> list[tuple[int, int]]:
    """Return the links of a topology, or none if it cannot be built."""
    if topology["name"] == "file":
        lines = generator.files[topology["path"]].splitlines()
        return [(int(i), int(j)) for i, j in map(str.split, lines)]
    build = CHOICES["topology"].validate(topology).bind()
    try:
        return sorted(build(generator.num_clients, Streams(seed).generator("topology")).edges)
    except OptionError:
        return []


def needs_a_timeout(scenario: Table) -> bool:
    """Return whether a client could wait forever, or an attack needs a deadline that is not set."""
    try:
        Scenario.from_dict(scenario)
    except ScenarioError as error:
        return any(problem.path.endswith((".wait", ".timing")) for problem in error.problems)
    return False
