"""The contracts of graphs, links, schedules, waiting and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, islice, product
from typing import cast, get_args

import networkx as nx
import numpy as np
from simpy.core import EmptySchedule

from rdpfl_sim.components.registry import Plugin
from rdpfl_sim.contracts.call_checks import (
    FROM_RNG,
    NOT_STORED,
    Contract,
    FlawError,
    Guard,
    call_plugin,
    check_number,
    check_type,
    describe,
)
from rdpfl_sim.contracts.fault_effect import effect_flaw
from rdpfl_sim.contracts.hidden_state import HiddenAttributes
from rdpfl_sim.contracts.maths import vector
from rdpfl_sim.methods.base import Payload
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.adversary.schedules import ScheduleView
from rdpfl_sim.world.adversary.timing import ScheduledMessage, TimingView
from rdpfl_sim.world.faults.fault import Change
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.bandwidth import Bandwidth
from rdpfl_sim.world.network.latency import constant
from rdpfl_sim.world.network.links import MAX_ATTEMPTS, MESSAGE, ROUND, Link, lossless
from rdpfl_sim.world.network.transport import Transport
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait

FROM_DRAW = "its first argument is a random number between 0 and 1"
DRAWS = (1e-9, 0.25, 0.5, 0.75, 1 - 1e-9)
NUM_CLIENTS = 4
NUM_COMPARED = 100
"""Number of changes of a fault that are compared."""
MAX_EVENTS = 1000
"""Limit for a bandwidth plug-in; three messages need fewer events."""


def _check_seconds(result: object, *arguments: object, above: bool = False) -> None:
    check_number(result, "seconds", above=above)


def _check_bool(result: object, *arguments: object) -> None:
    """Check that the result is a bool, not a number or an array."""
    check_type(result, bool, "True or False")


def _check_timing_attack(result: object, view: TimingView) -> None:
    if not isinstance(result, list) or not all(isinstance(each, ScheduledMessage) for each in result):
        raise FlawError(f"returns {describe(result)}, not a list of ScheduledMessage")
    for message in result:
        if type(message.stamp) is not int:
            raise FlawError(f"returns a message whose stamp is {describe(message.stamp)}, not a whole number")
        if not isinstance(message.payload, Payload):
            found = describe(message.payload)
            raise FlawError(f"returns a message whose payload is {found}, not a Payload")
        check_number(message.delay_s, "the delay of a message")


def _timing_view(round_: int, deadline_s: float | None) -> TimingView:
    past = {past: Payload(vector(past)) for past in range(1, round_ + 1)}
    return TimingView(round_, 2, 20.0, deadline_s, past, key=7, num_clients=NUM_CLIENTS)


def _schedule_view(round_: int, partitioned: bool) -> ScheduleView:
    return ScheduleView(round_, 2.5 * round_, partitioned=partitioned, num_trusted=lambda: 10 * round_)


def _check_wait(result: object) -> None:
    wait = check_type(result, Wait, "a Wait")
    check_number(wait.fraction, "fraction", most=1)
    if wait.timeout_s is not None:
        check_number(wait.timeout_s, "timeout_s", above=True)
    for num in range(4):
        needed = wait.num_needed(num)
        if type(needed) is not int or not 0 <= needed <= num:
            raise FlawError(f"waits for {needed} of {num} neighbours")


def _check_staleness(result: object) -> None:
    staleness = check_type(result, Staleness, "a Staleness")
    if type(staleness.max_age) is not int or staleness.max_age < 0:
        raise FlawError(f"returns {staleness.max_age!r} as max_age, not a whole number of at least 0")
    for age in range(-1, 4):
        check_number(staleness.weight(age), f"the weight of a message of age {age}", most=1)


def _check_transport(result: object) -> None:
    transport = check_type(result, Transport, "a Transport")
    if type(transport.max_attempts) is not int or not 1 <= transport.max_attempts <= MAX_ATTEMPTS:
        raise FlawError(f"returns {transport.max_attempts!r} as max_attempts; allowed: 1 to {MAX_ATTEMPTS}")
    check_number(transport.timeout_s, "timeout_s", above=transport.retransmits)
    check_number(transport.backoff, "backoff", least=1)
    check_number(transport.acknowledgement_bytes, "acknowledgement_bytes")


def _check_geography(result: object, num_clients: int, streams: Streams) -> None:
    if not callable(result):
        raise FlawError(f"returns {describe(result)}, not a function of sender and recipient")


def _delays(delay_s: Callable[[int, int], float], num_clients: int, streams: Streams) -> list[float]:
    """Return the delay of every link."""
    return [delay_s(i, j) for i, j in product(range(num_clients), repeat=2) if i != j]


@dataclass
class SampleMessage:
    """A message with the fields that a bandwidth uses."""

    sender: int
    recipient: int
    size_bytes: float


def _check_bandwidth(result: object, kernel: Kernel) -> None:
    """Check that the bandwidth has its methods and that checkpoints can store its state."""
    for method in ("transmit", "drop"):
        if not callable(getattr(result, method, None)):
            raise FlawError(f"returns {describe(result)}, which has no method {method!r}")
    for name in ("STATE", "CALLS"):
        if not isinstance(getattr(result, name, None), tuple):
            raise FlawError(f"has no tuple {name}, so checkpoints could not store its state")


def _transmission_times(bandwidth: Bandwidth, kernel: Kernel) -> list[tuple[float, int]]:
    """Return the times at which three transmissions end. Only the listed state may change meanwhile."""
    through: list[tuple[float, int]] = []
    attributes = HiddenAttributes(bandwidth, bandwidth.STATE, [kernel])
    messages = [SampleMessage(0, 1, 1000.0), SampleMessage(0, 2, 0.0), SampleMessage(1, 2, 1e6)]
    for message in messages:
        bandwidth.transmit(message, lambda done: through.append((kernel.now, messages.index(done))))
        _check_attributes(attributes)
    with suppress(EmptySchedule):
        for _ in range(MAX_EVENTS):
            kernel.step()
            _check_attributes(attributes)
    if sorted(number for _, number in through) != [0, 1, 2]:
        raise FlawError(f"calls 'done' {len(through)} times for 3 messages; it must do so once for each")
    return through


def _check_attributes(attributes: HiddenAttributes) -> None:
    attribute = attributes.changed()
    if attribute is not None:
        raise FlawError(f"changes its attribute {attribute!r}, {NOT_STORED}; list it in STATE")


def _constants_of(link: Link) -> list[object]:
    """Return the attributes of a link that are not part of its state."""
    return [getattr(link, field.name) for field in fields(link) if field.name not in Link.STATE]


def _check_topology(result: object, num_clients: int, rng: np.random.Generator) -> None:
    """Check that the result is an undirected simple graph of the clients 0, 1, ..."""
    if not isinstance(result, nx.Graph) or result.is_directed() or result.is_multigraph():
        raise FlawError(
            f"returns {describe(result)}, not an undirected networkx.Graph without parallel links"
        )
    if len(result) != num_clients or not all(type(n) is int and 0 <= n < num_clients for n in result):
        raise FlawError(f"returns a graph whose nodes are not the clients 0 to {num_clients - 1}, as int")
    if any(i == j for i, j in result.edges):
        raise FlawError("returns a graph in which a client is linked to itself")


def _check_placement(
    result: object, graph: nx.Graph, num: int, rng: np.random.Generator, taken: Iterable[int]
) -> None:
    """Check that the result has the required number of free clients."""
    if not isinstance(result, list) or not all(type(client) is int for client in result):
        raise FlawError(f"returns {describe(result)}, not a list of clients")
    if len(result) != num or len(set(result)) != num or not set(result) <= set(graph) - set(taken):
        raise FlawError(f"returns {result}; it must return {num} different clients that are still free")


class CheckedSchedule:
    """The changes of a fault; each is checked when it is due."""

    def __init__(self, plugin: Plugin, schedule: Iterable[object]) -> None:
        self._changes = self._checked(plugin, schedule)
        self._ahead: list[tuple[float, Change]] = []

    def head(self, num: int) -> list[tuple[float, Change]]:
        """Return the first changes, before iteration starts."""
        self._ahead = list(islice(self._changes, num))
        return self._ahead

    def __iter__(self) -> Iterator[tuple[float, Change]]:
        return chain(self._ahead, self._changes)

    def _checked(self, plugin: Plugin, schedule: Iterable[object]) -> Iterator[tuple[float, Change]]:
        changes, last_s = call_plugin(plugin, iter, schedule), 0.0
        while (item := call_plugin(plugin, next, changes, None)) is not None:
            call_plugin(plugin, _check_change, item, last_s)
            time_s, change = cast("tuple[float, Change]", item)
            last_s = time_s
            yield time_s, change


def _check_change(item: object, last_s: float) -> None:
    if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], get_args(Change)):
        raise FlawError(f"yields {describe(item)}, not a pair of a time and a change")
    check_number(item[0], "the time of a change", least=last_s)
    flaw = effect_flaw(item[1])
    if flaw is not None:
        raise FlawError(flaw)


def _check_fault(result: object, *arguments: object) -> None:
    if not isinstance(result, Iterable):
        raise FlawError(f"returns {describe(result)}, not an iterator of changes")


WORLD_CONTRACTS: Mapping[str, Contract] = {
    "topology": Contract(check=_check_topology, called_twice=True, randomness=FROM_RNG),
    "timing_attack": Contract(
        check=_check_timing_attack,
        randomness="draw from a generator seeded with `view.key`",
        samples=lambda target: [(_timing_view(*each),) for each in product((1, 8), (None, 30.0))],
        unchanged=lambda view: (view, *(payload.vector for payload in view.past.values())),
    ),
    "attack_schedule": Contract(
        check=_check_bool,
        samples=lambda target: [(_schedule_view(*each),) for each in product((1, 8), (False, True))],
    ),
    "placement": Contract(check=_check_placement, called_twice=True, randomness=FROM_RNG),
    "latency": Contract(
        check=_check_seconds,
        samples=lambda target: [(draw,) for draw in DRAWS],
        randomness=FROM_DRAW,
    ),
    "geography": Contract(
        check=_check_geography,
        samples=lambda target: [(NUM_CLIENTS, Streams(1))],
        samples_are_typical=False,
        randomness="draw from `streams.generator(purpose)`, with the second argument",
        observe=_delays,
        guarded=lambda plugin, result: Guard(result, plugin, Contract(check=_check_seconds)),
    ),
    "loss": Contract(
        check=_check_bool,
        samples=lambda target: [
            (Link(0, 1, key=7, latency=constant, loses=lossless), ROUND + place * MESSAGE, now_s)
            for place, now_s in product(range(4), (0.0, 1000.0))
        ],
        randomness="draw from a generator seeded with `link.key` and the second argument",
        unchanged=lambda link, *others: (_constants_of(link), *others),  # a loss may change its state
    ),
    "bandwidth": Contract(
        check=_check_bandwidth,
        samples=lambda target: [(Kernel(initial_time=0.0),)],
        observe=_transmission_times,
    ),
    "transport": Contract(check=_check_transport, samples=lambda target: [()]),
    "fault": Contract(
        check=_check_fault,
        called_twice=True,
        observe=lambda schedule, context: schedule.head(NUM_COMPARED),
        randomness="draw from a generator seeded with `context.key`",
        guarded=CheckedSchedule,
    ),
    "compute": Contract(
        check=partial(_check_seconds, above=True),
        samples=lambda target: product(DRAWS, range(2)),
        randomness=FROM_DRAW,
        samples_are_typical=False,
    ),
    "wait": Contract(check=_check_wait, samples=lambda target: [()]),
    "staleness": Contract(check=_check_staleness, samples=lambda target: [()]),
}
