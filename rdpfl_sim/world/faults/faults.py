"""What goes wrong, and when: timed changes of the world, known before anything happens in it.

A fault is a function of the `Setting` that returns its schedule: changes in the order of their times, perhaps
without end. Nothing in a schedule depends on the run, so two runs that differ only in their method see the
same faults. Faults may overlap; a change that ends something ends one such beginning, not all of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from operator import itemgetter
from typing import Annotated, Literal, TypeAlias

import networkx as nx
from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from rdpfl_sim.components.choice import OneOf
from rdpfl_sim.components.options import (
    LARGE,
    ClientSet,
    Doc,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveFraction,
    client_ids,
)
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.rounding import round_down
from rdpfl_sim.world.faults.changes import (
    Absent,
    Change,
    Clients,
    Crash,
    Cut,
    Heal,
    Join,
    Leave,
    LinksDown,
    LinksUp,
    Recover,
    Rewire,
    Slow,
    Unslow,
)
from rdpfl_sim.world.faults.churn_trace import bad_line, read_trace
from rdpfl_sim.world.network.topology import TOPOLOGIES
from rdpfl_sim.world.quantiles import exponential


@dataclass(frozen=True)
class Setting:
    """All that a fault may know: the clients, their links at the start, and where to draw from.

    `links` are pairs (i, j), i < j. `key` names a random stream of this fault's own. `draw_topology(k)` are
    the neighbours of every client in the k-th fresh draw of the scenario's topology, k >= 1;
    `build_topology(topology)` those in another one.
    """

    num_clients: int
    links: Sequence[tuple[int, int]]
    key: int
    draw_topology: Callable[[int], Sequence[Sequence[int]]]
    build_topology: Callable[..., Sequence[Sequence[int]]]


Schedule: TypeAlias = Iterator[tuple[float, Change]]

ChosenClients: TypeAlias = Annotated[
    ClientSet | None, Doc("ids, or a string such as '0..4, 7'; either this or fraction")
]
ChosenFraction: TypeAlias = Annotated[
    PositiveFraction | None, Doc("of the clients, drawn at random, rounded down to whole clients")
]
From: TypeAlias = Annotated[NonNegative, Doc("when it begins")]
Until: TypeAlias = Annotated[Positive | None, Doc("when it ends; by default never")]
Recurring: TypeAlias = Annotated[float, Ge(1e-6), Le(LARGE)]  # less, and simulated time would stand still
Pair: TypeAlias = Annotated[list[NonNegativeInt], MinLen(2), MaxLen(2)]
RecoveredState: TypeAlias = Annotated[
    Literal["kept", "fresh"], Doc("go on with the own model or with a fresh one, after recovery")
]
CatchUp: TypeAlias = Annotated[
    bool, Doc("after recovery go on at the round of the furthest neighbour, instead of the own one")
]


def merged(schedules: Iterable[Schedule]) -> Iterator[tuple[float, int, Change]]:
    """All changes in time, each with the position of its schedule; of simultaneous ones the first's first."""
    return heapq.merge(
        *(_numbered(position, schedule) for position, schedule in enumerate(schedules)), key=itemgetter(0)
    )


@dataclass(frozen=True, kw_only=True)
class FaultFacts(Facts):
    """What the simulator must know about a fault."""

    may_lose_messages: bool = True
    """Whether it can keep a message from arriving."""


FAULTS = Registry("fault", FaultFacts)
fault = FAULTS.register


@fault
def partition(
    setting: Setting,
    *,
    sides: Annotated[
        list[ClientSet], MinLen(1), Doc("sets of clients; a single one is parted from all others")
    ],
    from_s: From = 0.0,
    until_s: Until = None,
) -> Schedule:
    """The sides hear nothing of each other for a time; clients on no side still hear everybody."""
    given = [frozenset(client_ids("sides", side, setting.num_clients)) for side in sides]
    if len(given) == 1:
        given.append(frozenset(range(setting.num_clients)) - given[0])
        if not given[1]:
            raise OptionError("sides", "a single side must leave somebody on the other one")
    taken: set[int] = set()
    for side in given:
        if taken & side:
            raise OptionError("sides", f"client {min(taken & side)} is on two sides")
        taken |= side
    return _spell(from_s, until_s, Cut(tuple(given)), Heal(tuple(given)))


@fault
def random_partitions(
    setting: Setting,
    *,
    mean_time_to_fail_s: Annotated[Recurring, Doc("mean of the exponential time until the next cut")],
    mean_time_to_heal_s: Annotated[Recurring, Doc("mean of the exponential time that a cut lasts")],
    fraction: Annotated[float, Gt(0), Le(0.5), Doc("of the clients, rounded down: the smaller side")] = 0.5,
) -> Schedule:
    """Again and again the clients are split at random into two sides that hear nothing of each other."""
    if setting.num_clients < 2:
        raise OptionError("", "a partition needs at least two clients")
    num_smaller = _whole(fraction, setting.num_clients)
    streams = Streams(setting.key)
    everybody = frozenset(range(setting.num_clients))

    def changes() -> Schedule:
        spells = _random_spells(streams.key("cuts"), mean_time_to_fail_s, mean_time_to_heal_s)
        for number, (start_s, end_s) in enumerate(spells):
            smaller = frozenset(_shuffled(setting.num_clients, streams.key("side", number))[:num_smaller])
            sides = (smaller, everybody - smaller)
            yield start_s, Cut(sides)
            yield end_s, Heal(sides)

    return changes()


@fault
def link_outage(
    setting: Setting,
    *,
    links: Annotated[
        list[Pair], MinLen(1), Doc("pairs [i, j] of clients; it is no matter if they are linked")
    ],
    one_way: Annotated[bool, Doc("only messages from i to j are lost")] = False,
    from_s: From = 0.0,
    until_s: Until = None,
) -> Schedule:
    """Some links carry nothing for a time."""
    directed: dict[tuple[int, int], None] = {}  # a set that keeps the order
    for i, j in links:
        client_ids("links", [i, j], setting.num_clients)
        if (i, j) in directed:
            raise OptionError("links", f"the link between {i} and {j} occurs twice")
        directed |= dict.fromkeys([(i, j)] if one_way else [(i, j), (j, i)])
    return _spell(from_s, until_s, LinksDown(tuple(directed)), LinksUp(tuple(directed)))


@fault
def random_outages(
    setting: Setting,
    *,
    mean_time_to_fail_s: Annotated[Recurring, Doc("mean of the exponential time until a link's next outage")],
    mean_time_to_heal_s: Annotated[Recurring, Doc("mean of the exponential time that an outage lasts")],
) -> Schedule:
    """Every link of the first topology fails and heals on its own, in both directions together."""
    streams = Streams(setting.key)

    def changes(i: int, j: int) -> Schedule:
        both_ways = ((i, j), (j, i))
        for start_s, end_s in _random_spells(
            streams.key("link", i, j), mean_time_to_fail_s, mean_time_to_heal_s
        ):
            yield start_s, LinksDown(both_ways)
            yield end_s, LinksUp(both_ways)

    return heapq.merge(*(changes(i, j) for i, j in setting.links), key=itemgetter(0))


@fault
def crash(
    setting: Setting,
    *,
    clients: ChosenClients = None,
    fraction: ChosenFraction = None,
    at_s: NonNegative,
    recover_after_s: Annotated[Positive | None, Doc("by default never: crash-stop")] = None,
    state: RecoveredState = "kept",
    catch_up: CatchUp = True,
) -> Schedule:
    """Some clients stop, and perhaps recover."""
    chosen = _chosen(setting, clients, fraction)
    _only_with("recover_after_s", recover_after_s, state, catch_up)
    changes: list[tuple[float, Change]] = [(at_s, Crash(chosen, for_good=recover_after_s is None))]
    if recover_after_s is not None:
        changes.append((at_s + recover_after_s, Recover(chosen, state == "fresh", catch_up)))
    return iter(changes)


@fault
def random_crashes(
    setting: Setting,
    *,
    clients: Annotated[ClientSet | None, Doc("by default all")] = None,
    mean_time_to_fail_s: Annotated[
        Recurring, Doc("mean of the exponential time until a client's next crash")
    ],
    mean_time_to_recover_s: Annotated[
        Recurring | None, Doc("mean of the exponential time until recovery; by default never: crash-stop")
    ] = None,
    state: RecoveredState = "kept",
    catch_up: CatchUp = True,
) -> Schedule:
    """Clients crash and recover, each on its own."""
    everybody = tuple(range(setting.num_clients))
    chosen = everybody if clients is None else client_ids("clients", clients, setting.num_clients)
    _only_with("mean_time_to_recover_s", mean_time_to_recover_s, state, catch_up)
    mean_s = inf if mean_time_to_recover_s is None else mean_time_to_recover_s
    streams = Streams(setting.key)

    def changes(client: int) -> Schedule:
        for start_s, end_s in _random_spells(streams.key("client", client), mean_time_to_fail_s, mean_s):
            yield start_s, Crash((client,), for_good=end_s == inf)
            if end_s == inf:
                return
            yield end_s, Recover((client,), state == "fresh", catch_up)

    return heapq.merge(*map(changes, chosen), key=itemgetter(0))


@fault
def late_join(
    setting: Setting, *, clients: ChosenClients = None, fraction: ChosenFraction = None, at_s: Positive
) -> Schedule:
    """Some clients begin later than the others."""
    chosen = _chosen(setting, clients, fraction)
    return iter([(0.0, Absent(chosen)), (at_s, Join(chosen))])


@fault
def leave(
    setting: Setting, *, clients: ChosenClients = None, fraction: ChosenFraction = None, at_s: NonNegative
) -> Schedule:
    """Some clients go for good."""
    return iter([(at_s, Leave(_chosen(setting, clients, fraction)))])


@fault(may_lose_messages=False)
def slow_down(
    setting: Setting,
    *,
    clients: ChosenClients = None,
    fraction: ChosenFraction = None,
    factor: Annotated[Positive, Doc("training takes this many times as long")],
    from_s: From = 0.0,
    until_s: Until = None,
) -> Schedule:
    """Some clients train more slowly for a time."""
    chosen = _chosen(setting, clients, fraction)
    return _spell(from_s, until_s, Slow(chosen, factor), Unslow(chosen, factor))


@fault
def churn_trace(
    setting: Setting,
    *,
    path: Annotated[str, Doc("a CSV file: time_s,client,state with the states down, up and fresh")],
    catch_up: CatchUp = True,
) -> Schedule:
    """Clients crash and recover as a file says.

    A client goes down, and up again with its own or a fresh model. One that is up in its first row is absent
    until then; one without rows is always there. Simultaneous rows count in the order of the file.
    """
    rows = sorted(read_trace(path, setting.num_clients), key=lambda row: row.time_s)
    changes: list[tuple[float, Change]] = []
    absent = []
    is_up: dict[int, bool] = {}
    is_last = {row.client: row.line for row in rows}
    for time_s, client, state, line in rows:
        up = state != "down"
        if is_up.get(client) is up:
            raise bad_line(line, f"client {client} is already {'up' if up else 'down'} at {time_s:g} s")
        if not up:
            changes.append((time_s, Crash((client,), for_good=is_last[client] == line)))
        elif client in is_up:
            changes.append((time_s, Recover((client,), state == "fresh", catch_up)))
        elif time_s > 0:  # at 0 it is there from the beginning
            absent.append(client)
            changes.append((time_s, Join((client,))))
        is_up[client] = up
    return iter(([(0.0, Absent(tuple(sorted(absent))))] if absent else []) + changes)


@fault
def resample_topology(setting: Setting, *, every_s: Recurring) -> Schedule:
    """The scenario's topology is drawn anew at every multiple of every_s."""
    return ((k * every_s, _rewire(setting.draw_topology(k))) for k in count(1))


@fault
def change_topology(
    setting: Setting,
    *,
    at_s: NonNegative,
    topology: Annotated[Callable[..., nx.Graph], OneOf(TOPOLOGIES), Doc("links the clients from then on")],
) -> Schedule:
    """Another topology takes the place of the one before."""
    try:
        neighbours = setting.build_topology(topology)
    except OptionError as error:
        raise OptionError(f"topology.{error.option}", error.message) from error
    return iter([(at_s, _rewire(neighbours))])


def _numbered(position: int, schedule: Schedule) -> Iterator[tuple[float, int, Change]]:
    for time_s, change in schedule:
        yield time_s, position, change


def _spell(from_s: float, until_s: float | None, begin: Change, end: Change) -> Schedule:
    if until_s is None:
        return iter([(from_s, begin)])
    if until_s <= from_s:
        raise OptionError("until_s", f"must be after from_s = {from_s:g}")
    return iter([(from_s, begin), (until_s, end)])


def _random_spells(key: int, mean_between_s: float, mean_length_s: float) -> Iterator[tuple[float, float]]:
    """Start and end of one spell after the other, with exponential lengths and times between them."""
    end_s = 0.0
    for number in count():
        start_s = end_s + exponential(uniform(key, 2 * number), mean_between_s)
        end_s = start_s + exponential(uniform(key, 2 * number + 1), mean_length_s)
        yield start_s, end_s


def _chosen(setting: Setting, clients: ClientSet | None, fraction: float | None) -> Clients:
    """The listed clients, or a random fraction: a larger one only adds to a smaller one."""
    if clients is not None:
        if fraction is not None:
            raise OptionError("fraction", "give either clients or fraction, not both")
        return client_ids("clients", clients, setting.num_clients)
    if fraction is None:
        raise OptionError("clients", "is required, or fraction in its place")
    shuffled = _shuffled(setting.num_clients, Streams(setting.key).key("chosen"))
    return tuple(sorted(shuffled[: _whole(fraction, setting.num_clients)]))


def _whole(fraction: float, num_clients: int) -> int:
    """That fraction of the clients, rounded down to whole clients, but at least one."""
    whole = round_down(fraction * num_clients)
    if whole == 0:
        raise OptionError("fraction", f"is less than one client; allowed: at least 1/{num_clients}")
    return whole


def _shuffled(num_clients: int, key: int) -> list[int]:
    return sorted(range(num_clients), key=partial(uniform, key))


def _only_with(option: str, value: float | None, state: str, catch_up: bool) -> None:
    """Refuse what would say how to recover if nobody does."""
    if value is None:
        for name, is_default in (("state", state == "kept"), ("catch_up", catch_up)):
            if not is_default:
                raise OptionError(name, f"says how to recover, so it needs {option}")


def _rewire(neighbours: Sequence[Sequence[int]]) -> Rewire:
    return Rewire(tuple(map(tuple, neighbours)))
