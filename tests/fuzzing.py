"""Random scenarios, drawn from the scenario's own schema: a new component is fuzzed as soon as it has a name.

What an option's type says (bounds, choices, lengths) is read off the type. `CAPS` keeps runs small, and
`MENDED` knows what a type cannot say, such as that a regular graph of five clients has an even degree.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from rdpfl_sim import Scenario, ScenarioError
from rdpfl_sim.components.choice import OneAfterOthers, OneOf
from rdpfl_sim.components.options import LARGE, ClientSet, NonNegative, Positive
from rdpfl_sim.components.table import Strict
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams
from rdpfl_sim.scenario.sections import CHOICES, AdversarySection
from rdpfl_sim.world.faults.options import MeanTime

Table = dict[str, Any]

CAPS = {
    "num_train": (40, 80),
    "num_test": (1, 10),
    "num_classes": (1, 4),
    "min_samples": (1, 2),
    "per_client": (1, 4),
    "shape": (1, 4),
    "local_epochs": (1, 1000),
    "local_steps": (1, 1000),
    "hidden": (1, 3),
    "width": (1, 2),
    "copies": (1, 20),
    "max_attempts": (2, 6),
    "iterations": (1, 200),
}
"""Bounds on whole numbers that cost memory or time; these options are always given."""

NICE_TIMES = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
"""Times that often coincide, because ties are where event-driven programs go wrong."""

EXTREMES = (0.0, 5e-324, 1e-300, 1e-40, 1e-30, 1e-9, 1e9)
"""Numbers where arithmetic goes wrong, beside the bounds of an option."""

LARGEST_WHOLE = 2**63 - 1  # of TOML

_CLIENT_SET = get_args(ClientSet)[1]
_RECURRING = get_args(MeanTime)[1]


@dataclass(frozen=True)
class Sketch:
    """A scenario as a table, the files that it names, and odd mail: recipient, sender, stamp and kind."""

    scenario: Table
    files: dict[str, str]
    mail: list[tuple[int, int, int, int]]


@dataclass
class Sketcher:
    """Draws tables and their options, all for the same clients and the same span of simulated time."""

    draw: DrawFn
    num_clients: int
    span_s: float
    wild: bool
    """Whether some numbers are as extreme as their types allow."""
    files: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)
    """The links of the topology, once it is known."""
    recurs: bool = False
    """Whether something happens again and again, so that the run needs an end."""

    def chance(self, times: int, of: int) -> bool:
        """Whether something happens that does so many times of so many; it shrinks to no."""
        return bool(self.draw(st.integers(1, of)) > of - times)

    def pick(self, values: Iterable[Any]) -> Any:
        """One of these; the first is the simplest."""
        return self.draw(st.sampled_from(list(values)))

    def some_clients(self, among: Sequence[int] | None = None) -> list[int]:
        """At least one of these clients, by default of all, in any order."""
        among = range(self.num_clients) if among is None else among
        return self.draw(st.lists(st.sampled_from(among), min_size=1, unique=True))

    def table(self, model: type[Strict], *but: str) -> Table:
        """A table with random options, some of them left out; without the keys `but`."""
        table: Table = {}
        for name, info in model.model_fields.items():
            key = info.alias or name
            if key in but or name == "name":
                continue
            costly = key in CAPS and info.default is not None
            if not (info.is_required() or costly or self.chance(2, of=3)):
                continue
            hint = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
            value = self.value(hint, key, info.default)
            if value is not None:
                table[key] = value
        for one, other in EITHER:
            if one in table:
                table.pop(other, None)
        for low, high in ORDERED:
            if {low, high} & table.keys() and {low, high} <= set(model.keys()):
                self.put_in_order(table, low, high, model)
        return table

    def component(self, choice: OneOf) -> Table:
        """One of the components with random options."""
        name = self.pick(ONLY.get(choice.kind) or choice.names())
        table = {"name": name, **self.table(choice.table(name))}
        mend = MENDED.get((choice.kind, name))
        if mend is not None:
            mend(self, table)
        return table

    def value(self, hint: Any, key: str, default: Any = None) -> Any:
        """A value of an option; None leaves it out."""
        base, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        kind, inner = get_origin(base), get_args(base)
        choice = next((mark for mark in marks if isinstance(mark, OneOf)), None)
        if isinstance(choice, OneAfterOthers) and self.chance(1, of=3):
            others = [self.component(choice.others) for _ in range(self.draw(st.integers(1, 3)))]
            return [*others, self.component(choice)]
        if choice is not None:
            return self.component(choice)
        if _CLIENT_SET in marks:
            nobody = [self.num_clients] if self.wild and self.chance(1, of=20) else []
            return self.spelt(self.some_clients() + nobody)
        if kind in (Union, types.UnionType):
            return self.value(self.pick(arg for arg in inner if arg is not type(None)), key, default)
        if kind is Literal:
            return self.pick(inner)
        if kind is not None and issubclass(kind, Sequence):
            shortest = max([0, *(mark.min_length for mark in marks if isinstance(mark, MinLen))])
            longest = min([3, *(mark.max_length for mark in marks if isinstance(mark, MaxLen))])
            return [self.value(inner[0], key) for _ in range(self.draw(st.integers(shortest, longest)))]
        if base is bool:
            return self.draw(st.booleans())
        if base is int:
            return self.whole(key, marks)
        if base is float:
            return self.number(key, marks, default)
        if isinstance(base, type) and issubclass(base, Strict):
            return self.table(base)
        assert base is str, f"{key}: the fuzzer cannot draw a {base}"
        if key == "notes":
            return self.draw(st.text(max_size=20))
        return None  # names and paths have a meaning: they are given elsewhere

    def whole(self, key: str, marks: Sequence[Any]) -> int:
        """A whole number: a small one, or sometimes anything that is allowed."""
        low, high, _, _ = bounds(marks, -LARGEST_WHOLE, LARGEST_WHOLE)
        if key in CAPS:
            return self.draw(st.integers(*CAPS[key]))
        if self.wild and self.chance(1, of=6):
            return self.draw(st.integers(low, high))
        least = max(low, -3)
        return self.draw(st.integers(least, min(high, least + 6)))

    def number(self, key: str, marks: Sequence[Any], default: Any) -> Any:
        """A number: near the default, or a time if it has the name of one, or sometimes an extreme one."""
        low, high, above, below = bounds(marks, -LARGE, LARGE)

        def allowed(value: float) -> bool:
            return low <= value <= high and not (above and value == low) and not (below and value == high)

        if _RECURRING in marks:  # not so often that a run would last for ever
            self.recurs = True
            return self.span_s * self.draw(st.floats(0.05, 2.0))
        if self.wild and self.chance(1, of=6):
            return self.pick(filter(allowed, sorted({low, high, *EXTREMES, *(-x for x in EXTREMES)})))
        is_time = key.endswith("_s") or key == "seconds"
        if is_time and self.draw(st.booleans()):
            return self.pick(filter(allowed, NICE_TIMES))
        usual = default if isinstance(default, float) and default > 0 else 1.0
        return self.draw(st.floats(max(low, usual / 10), min(high, usual * 10)).filter(allowed))

    def spelt(self, clients: Sequence[int]) -> list[int] | str:
        """A set of clients as a list, or as a string."""
        if self.draw(st.booleans()):
            return list(clients)
        first, last = min(clients), max(clients)
        if sorted(clients) == list(range(first, last + 1)):
            return f"{first}..{last}"
        return ", ".join(map(str, clients))

    def put_in_order(self, table: Table, low: str, high: str, model: type[Strict]) -> None:
        """Have one option not above (for an end: below) another, whose default counts if it is left out."""
        start = table.get(low, model.model_fields[low].default)
        end = table.get(high, model.model_fields[high].default)
        if end is None:
            return
        table[low], table[high] = min(start, end), max(start, end)
        if start == end and high.startswith("until"):
            del table[high]


def bounds(marks: Sequence[Any], low: Any, high: Any) -> tuple[Any, Any, bool, bool]:
    """The least and the largest value that annotations allow, and whether these are themselves excluded."""
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


EITHER = (("local_steps", "local_epochs"), ("victims", "fraction"), ("sizes", "num"))
"""Options of one table of which only one may be given."""

ORDERED = (("low_s", "high_s"), ("from_s", "until_s"), ("from_round", "until_round"))
"""Options of one table of which the first must not be above the second."""

ONLY = {"data": ["synthetic"]}  # to load any other takes longer than a run
"""Kinds of which not every component is drawn."""


def divisor(sketcher: Sketcher, table: Table) -> None:
    """Rows divide the number of clients."""
    if "rows" in table:
        table["rows"] = sketcher.pick(r for r in range(1, 9) if sketcher.num_clients % r == 0)


def k_regular(sketcher: Sketcher, table: Table) -> None:
    """k < n, and n k is even."""
    n = sketcher.num_clients
    table["k"] = sketcher.pick([k for k in range(1, n) if n * k % 2 == 0] or [1])


def small_world(sketcher: Sketcher, table: Table) -> None:
    """k < n is even."""
    table["k"] = sketcher.pick(range(2, max(3, sketcher.num_clients), 2))


def scale_free(sketcher: Sketcher, table: Table) -> None:
    """m < n."""
    table["m"] = sketcher.pick(range(1, max(2, sketcher.num_clients)))


def communities(sketcher: Sketcher, table: Table) -> None:
    """Sizes add up to the number of clients; or there are at most as many communities."""
    n = sketcher.num_clients
    if "sizes" in table:
        first = sketcher.pick(range(1, n + 1))
        table["sizes"] = [first, *([1] * (n - first))]
    elif "num" in table:
        table["num"] = sketcher.pick(range(1, n + 1))


def graph_file(sketcher: Sketcher, table: Table) -> None:
    """An edge list over the clients."""
    pairs = list(combinations(range(sketcher.num_clients), 2)) or [(0, 0)]
    links = sketcher.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    table["path"] = f"graph{len(sketcher.files)}.txt"
    table["format"] = sketcher.pick(["auto", "edgelist"])
    sketcher.files[table["path"]] = "".join(f"{i} {j}\n" for i, j in links)


def synthetic(sketcher: Sketcher, table: Table) -> None:
    """Vectors or images."""
    table["shape"] = sketcher.pick([[2], [3], [1, 2, 2], [2, 4, 5]])


def descent(sketcher: Sketcher, table: Table) -> None:
    """A coefficient belongs to step = 'local'."""
    if table.get("step", "local") != "local":
        table.pop("coefficient", None)


def regions(sketcher: Sketcher, table: Table) -> None:
    """A square matrix, and a region for every client."""
    size = sketcher.pick(range(1, 4))
    table["delays_s"] = [[sketcher.value(NonNegative, "delays_s") for _ in range(size)] for _ in range(size)]
    if "members" in table:
        table["members"] = [sketcher.pick(range(size)) for _ in range(sketcher.num_clients)]


def listed(sketcher: Sketcher, table: Table) -> None:
    """A compute time for every client."""
    table["seconds"] = [sketcher.value(Positive, "seconds") for _ in range(sketcher.num_clients)]


def clients_or_fraction(sketcher: Sketcher, table: Table) -> None:
    """Some clients, by their ids or by number; how they recover, only if they do."""
    if "clients" in table:
        table.pop("fraction", None)
    else:
        table["fraction"] = sketcher.draw(st.floats(1 / sketcher.num_clients, 1.0))
    if table["name"] == "crash" and "recover_after_s" not in table:
        forget_recovery(table)


def random_crashes(sketcher: Sketcher, table: Table) -> None:
    """How clients recover, only if they do."""
    if "mean_time_to_recover_s" not in table:
        forget_recovery(table)


def forget_recovery(table: Table) -> None:
    """Leave out what says how to recover."""
    for key in ("state", "catch_up"):
        table.pop(key, None)


def random_partitions(sketcher: Sketcher, table: Table) -> None:
    """At least one client on the smaller side."""
    if "fraction" in table:
        table["fraction"] = sketcher.draw(st.floats(min(0.5, 1 / sketcher.num_clients), 0.5))


def partition_fault(sketcher: Sketcher, table: Table) -> None:
    """Disjoint sides; a single one leaves somebody on the other."""
    one, *rest = sketcher.draw(st.permutations(range(sketcher.num_clients)))
    cut = sketcher.pick(range(max(1, len(rest))))
    table["sides"] = [sketcher.spelt([one, *rest[:cut]])]
    if rest[cut:] and sketcher.pick([False, True]):
        table["sides"].append(sketcher.spelt(sketcher.some_clients(rest[cut:])))


def link_outage(sketcher: Sketcher, table: Table) -> None:
    """Links of the topology, either way round."""
    links = sketcher.draw(st.lists(st.sampled_from(sketcher.edges or [(0, 0)]), min_size=1, unique=True))
    table["links"] = [list(link)[:: sketcher.pick([1, -1])] for link in links]


def churn_trace(sketcher: Sketcher, table: Table) -> None:
    """A trace in which every client goes down and up in turns."""
    rows = []
    for client in sketcher.some_clients():
        up = sketcher.draw(st.booleans())
        time_s = 0.0
        for _ in range(sketcher.pick(range(1, 5))):
            time_s += sketcher.pick(NICE_TIMES)
            rows.append(f"{time_s!r},{client},{sketcher.pick(['up', 'fresh']) if up else 'down'}\n")
            up = not up
    table["path"] = f"trace{len(sketcher.files)}.csv"
    sketcher.files[table["path"]] = "time_s,client,state\n" + "".join(rows)


MENDED: dict[tuple[str, str], Callable[[Sketcher, Table], None]] = {
    ("topology", "grid"): divisor,
    ("topology", "torus"): divisor,
    ("topology", "k_regular"): k_regular,
    ("topology", "small_world"): small_world,
    ("topology", "scale_free"): scale_free,
    ("topology", "communities"): communities,
    ("topology", "file"): graph_file,
    ("data", "synthetic"): synthetic,
    ("method", "rdpfl"): descent,
    ("method", "direct"): descent,
    ("geography", "regions"): regions,
    ("compute", "list"): listed,
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
"""What makes a drawn table possible, by kind and name; the reasons are those that the components give."""


GIVEN = (
    "name",
    "rounds",
    "clients",
    "topology",
    "data",
    "partition",
    "model",
    "adversary",
    "faults",
    "execution",
)
"""Sections that `sketches` fills in itself, or that have nothing to do with a run."""


@st.composite
def sketches(draw: DrawFn) -> Sketch:
    """Small scenarios that use all that there is; most of them are valid."""
    sketcher = Sketcher(
        draw,
        num_clients=draw(st.integers(1, 8)),
        span_s=draw(st.floats(2.0, 40.0)),
        wild=draw(st.booleans()),
    )
    scenario = sketcher.table(Scenario, *GIVEN)
    scenario["rounds"] = draw(st.integers(1, 6))
    scenario["clients"] = {"count": sketcher.num_clients}
    scenario["topology"] = sketcher.component(CHOICES["topology"])
    scenario["data"] = sketcher.component(CHOICES["data"])
    scenario["partition"] = sketcher.component(CHOICES["partition"])
    scenario["model"] = sketcher.component(CHOICES["model"])
    if scenario["model"]["name"] == "cnn":
        scenario["data"]["shape"] = [1, 4, 4]
    suit_the_model(sketcher, scenario)
    scenario["adversary"] = groups(sketcher)
    sketcher.edges = edges(sketcher, scenario["topology"], scenario.get("seed", 1))
    num_faults = sketcher.pick(range(5))
    scenario["faults"] = [sketcher.component(CHOICES["fault"]) for _ in range(num_faults)]
    timing = scenario.setdefault("timing", {})
    if sketcher.recurs:
        timing["max_time_s"] = sketcher.span_s
    if needs_a_timeout(scenario):
        timing["wait"] = {"name": sketcher.pick(["all", "quorum"]), "timeout_s": sketcher.pick([0.5, 1.0])}
    return Sketch(scenario, sketcher.files, odd_mail(sketcher, scenario["rounds"]))


def suit_the_model(sketcher: Sketcher, scenario: Table) -> None:
    """FedPer needs a body."""
    method, model = scenario.get("method", {}), scenario["model"]
    if method.get("name") == "fedper":
        if model["name"] == "softmax" or model.get("hidden") == []:
            model.clear()
            model.update(name="mlp", hidden=[2])
        num_layers = 5 if model["name"] == "cnn" else 1 + len(model.get("hidden", [64]))
        method["head_layers"] = sketcher.pick(range(1, num_layers))


def odd_mail(sketcher: Sketcher, rounds: int) -> list[tuple[int, int, int, int]]:
    """Some messages that nobody should send; the numbers are taken modulo what there is."""
    if sketcher.chance(2, of=3):
        return []
    letter = st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(-1, rounds + 1), st.integers(0, 99))
    return sketcher.draw(st.lists(letter, min_size=1, max_size=12))


def groups(sketcher: Sketcher) -> list[Table] | Table:
    """Groups of attackers that leave somebody honest."""
    found: list[Table] = []
    free = sketcher.draw(st.permutations(range(sketcher.num_clients)))[1:]
    for _ in range(sketcher.pick(range(4))):
        group = sketcher.table(AdversarySection, "ids", "fraction")
        size = sketcher.pick(range(len(free) + 1))
        if sketcher.draw(st.booleans()):
            group["ids"] = sketcher.spelt(free[:size]) if size else []
            group.pop("placement", None)
        else:
            group["fraction"] = size / sketcher.num_clients
        free = free[size:]
        found.append(group)
    return found[0] if len(found) == 1 and sketcher.draw(st.booleans()) else found


def edges(sketcher: Sketcher, topology: Table, seed: int) -> list[tuple[int, int]]:
    """The links of a topology."""
    if topology["name"] == "file":
        lines = sketcher.files[topology["path"]].splitlines()
        return [(int(i), int(j)) for i, j in map(str.split, lines)]
    build = CHOICES["topology"].validate(topology).bind()
    try:
        return sorted(build(sketcher.num_clients, Streams(seed).generator("topology")).edges)
    except OptionError:
        reject()


def needs_a_timeout(scenario: Table) -> bool:
    """Whether clients might wait for ever, or an attacker for a deadline that does not exist."""
    try:
        Scenario.from_dict(scenario)
    except ScenarioError as error:
        return any(problem.path.endswith((".wait", ".timing")) for problem in error.problems)
    return False
