"""What graphs, links, schedules, waiting and faults are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, product
from typing import Any, get_args

import networkx as nx
from simpy.core import EmptySchedule

from rdpfl_sim.components.plugin import Plugin
from rdpfl_sim.contracts.contract import Arguments, Contract, FlawError, Guard, a, caught, number_flaw
from rdpfl_sim.contracts.vectors import vector
from rdpfl_sim.errors import PluginError
from rdpfl_sim.methods.exchange import Payload
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.adversary.schedules import ScheduleView
from rdpfl_sim.world.adversary.timing import ScheduledMessage, TimingView
from rdpfl_sim.world.faults.fault import Change
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.latency import constant
from rdpfl_sim.world.network.links import MAX_ATTEMPTS, MESSAGE, ROUND, Link, lossless
from rdpfl_sim.world.network.transport import Transport
from rdpfl_sim.world.waiting import Staleness, Wait

DRAWS = (1e-9, 0.25, 0.5, 0.75, 1 - 1e-9)
NUM_CLIENTS = 4
HEAD = 100
"""Number of changes of a fault that are compared."""
MAX_EVENTS = 1000
"""Three messages need fewer."""


class Seconds(Contract):
    """A number of seconds, which may be zero."""

    above = False

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """No number, or one that time cannot pass by."""
        return number_flaw(result, "seconds", above=self.above)


class Latency(Seconds):
    """Seconds from a uniform draw."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Draws up to both ends."""
        for draw in DRAWS:
            yield partial(tuple, [draw])


class Compute(Seconds):
    """Seconds from a uniform draw and a client."""

    above = True
    samples_fit = False

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Draws up to both ends, for two clients."""
        for draw, client in product(DRAWS, range(2)):
            yield partial(tuple, [draw, client])


class Geography(Contract):
    """A function of sender and recipient that returns seconds, from the number of clients and the streams."""

    samples_fit = False

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """A few clients."""
        yield lambda: (NUM_CLIENTS, Streams(1))

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """What cannot be called."""
        return None if callable(result) else f"returns {a(result)}, not a function of sender and recipient"

    def guarded(self, result: Any, plugin: Plugin) -> Any:
        """The function, which checks every delay."""
        return Guard(result, plugin, Seconds())

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """The delay of every link."""
        return [result(i, j) for i, j in product(range(NUM_CLIENTS), repeat=2) if i != j]


class Truth(Contract):
    """True or False."""

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """All else, such as a number or an array."""
        return None if type(result) is bool else f"returns {a(result)}, not True or False"


class Loss(Truth):
    """Whether a link loses a message."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Several messages, soon and late."""
        for place, now_s in product(range(4), (0.0, 1000.0)):
            yield partial(self._message, place, now_s)

    def unchanged(self, arguments: Arguments) -> Any:
        """All but the link, in which a loss may keep its state."""
        return arguments[1:]

    def _message(self, place: int, now_s: float) -> Arguments:
        link = Link(0, 1, key=7, latency=constant, loses=lossless)
        return link, ROUND + place * MESSAGE, now_s


class Schedule(Truth):
    """Whether it is time to attack."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """The first round and a later one, with and without a partition."""
        for round_, partitioned in product((1, 8), (False, True)):
            yield partial(self._moment, round_, partitioned)

    def _moment(self, round_: int, partitioned: bool) -> Arguments:
        return (ScheduleView(round_, 2.5 * round_, partitioned=partitioned, num_trusted=lambda: 10 * round_),)


class TimingAttack(Contract):
    """Any number of parcels, from a message that is due."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """The first round and a later one, with and without a known deadline."""
        for round_, deadline_s in product((1, 8), (None, 30.0)):
            yield partial(self._occasion, round_, deadline_s)

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Anything but a list of parcels that can be sent."""
        if not isinstance(result, list) or not all(isinstance(parcel, ScheduledMessage) for parcel in result):
            return f"returns {a(result)}, not a list of ScheduledMessage"
        for parcel in result:
            if type(parcel.stamp) is not int:
                return f"returns a parcel whose stamp is {a(parcel.stamp)}, not a whole number"
            if not isinstance(parcel.payload, Payload):
                return f"returns a parcel whose payload is {a(parcel.payload)}, not a Payload"
            flaw = number_flaw(parcel.delay_s, "the delay of a parcel")
            if flaw is not None:
                return flaw
        return None

    def _occasion(self, round_: int, deadline_s: float | None) -> Arguments:
        past = {past: Payload(vector(past)) for past in range(1, round_ + 1)}
        return (TimingView(round_, 2, 20.0, deadline_s, past, key=7, num_clients=NUM_CLIENTS),)


class Without(Contract):
    """Something of a known type, from no arguments."""

    type: type[Any]

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """None."""
        yield tuple

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Another type, or impossible values."""
        if not isinstance(result, self.type):
            return f"returns {a(result)}, not a {self.type.__name__}"
        return next((flaw for flaw in self.flaws(result) if flaw is not None), None)

    def flaws(self, result: Any) -> Iterable[str | None]:
        """What may be wrong with the values."""
        raise NotImplementedError


class Waiting(Without):
    """A `Wait`."""

    type = Wait

    def flaws(self, result: Any) -> Iterable[str | None]:
        """A fraction, perhaps a timeout, and a number of neighbours that exist."""
        yield number_flaw(result.fraction, "fraction", most=1)
        if result.timeout_s is not None:
            yield number_flaw(result.timeout_s, "timeout_s", above=True)
        for num in range(4):
            needed = result.num_needed(num)
            if type(needed) is not int or not 0 <= needed <= num:
                yield f"waits for {needed} of {num} neighbours"


class Ageing(Without):
    """A `Staleness`."""

    type = Staleness

    def flaws(self, result: Any) -> Iterable[str | None]:
        """A greatest age, and weights."""
        if type(result.max_age) is not int or result.max_age < 0:
            yield f"returns {result.max_age!r} as max_age, not a whole number from 0 on"
        for age in range(-1, 4):
            yield number_flaw(result.weight(age), f"the weight of a message of age {age}", most=1)


class Delivering(Without):
    """A `Transport`."""

    type = Transport

    def flaws(self, result: Any) -> Iterable[str | None]:
        """A number of attempts, and waits between them."""
        if type(result.max_attempts) is not int or not 1 <= result.max_attempts <= MAX_ATTEMPTS:
            yield f"returns {result.max_attempts!r} as max_attempts; allowed: 1 to {MAX_ATTEMPTS}"
        yield number_flaw(result.timeout_s, "timeout_s", above=result.retransmits)
        yield number_flaw(result.backoff, "backoff", least=1)
        yield number_flaw(result.acknowledgement_bytes, "acknowledgement_bytes")


@dataclass
class Cargo:
    """A message as a bandwidth sees it."""

    sender: int
    recipient: int
    size_bytes: float


class Bandwidth(Contract):
    """Something that transmits messages, on a kernel."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """An empty kernel."""
        yield lambda: (Kernel(initial_time=0.0),)

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """What does not transmit, or cannot be written into a checkpoint."""
        if not callable(getattr(result, "transmit", None)):
            return f"returns {a(result)}, which has no method 'transmit'"
        for name in ("STATE", "CALLS"):
            if not isinstance(getattr(result, name, None), tuple):
                return f"has no tuple {name}, so checkpoints could not hold its state"
        return None

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """When three messages are through."""
        kernel: Kernel = arguments[0]
        through: list[tuple[float, int]] = []
        messages = [Cargo(0, 1, 1000.0), Cargo(0, 2, 0.0), Cargo(1, 2, 1e6)]
        for message in messages:
            result.transmit(message, lambda done: through.append((kernel.now, messages.index(done))))
        with suppress(EmptySchedule):
            for _ in range(MAX_EVENTS):
                kernel.step()
        if sorted(number for _, number in through) != [0, 1, 2]:
            raise FlawError(f"calls 'done' {len(through)} times for 3 messages; it must do so once for each")
        return through


class Topology(Contract):
    """An undirected simple graph of the clients 0, 1, ..., from their number and a generator."""

    rehearses = True

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Another graph, or none."""
        num_clients = arguments[0]
        if not isinstance(result, nx.Graph) or result.is_directed() or result.is_multigraph():
            return f"returns {a(result)}, not an undirected networkx.Graph without parallel links"
        if len(result) != num_clients or not all(type(n) is int and 0 <= n < num_clients for n in result):
            return f"returns a graph whose nodes are not the clients 0 to {num_clients - 1}, as int"
        if any(i == j for i, j in result.edges):
            return "returns a graph in which a client is linked to itself"
        return None


class Placement(Contract):
    """Clients that are Byzantine, from the graph, their number, a generator and those that are taken."""

    rehearses = True

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Others than so many free clients."""
        graph, num, _, taken = arguments
        free = set(graph) - set(taken)
        if not isinstance(result, list) or not all(type(client) is int for client in result):
            return f"returns {a(result)}, not a list of clients"
        if len(result) != num or len(set(result)) != num or not set(result) <= free:
            return f"returns {result}; it must return {num} different clients that are not taken"
        return None


class Fault(Contract):
    """Changes and their times, in their order and perhaps without end."""

    rehearses = True

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """What cannot be iterated over."""
        return None if isinstance(result, Iterable) else f"returns {a(result)}, not an iterator of changes"

    def guarded(self, result: Any, plugin: Plugin) -> Any:
        """The changes, each checked before it happens."""
        return CheckedSchedule(plugin, result)

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """The first changes."""
        return result.head(HEAD)


class CheckedSchedule:
    """A fault's changes, each checked when it is due."""

    def __init__(self, plugin: Plugin, schedule: Iterable[tuple[float, Change]]) -> None:
        self.plugin = plugin
        self._changes = self._checked(schedule)
        self._ahead: list[tuple[float, Change]] = []

    def head(self, num: int) -> list[tuple[float, Change]]:
        """The first changes, before any has been taken."""
        self._ahead = list(islice(self._changes, num))
        return self._ahead

    def __iter__(self) -> Iterator[tuple[float, Change]]:
        return chain(self._ahead, self._changes)

    def _checked(self, schedule: Iterable[tuple[float, Change]]) -> Iterator[tuple[float, Change]]:
        changes, last_s = caught(self.plugin, iter, schedule), 0.0
        while (item := caught(self.plugin, next, changes, None)) is not None:
            if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], get_args(Change)):
                raise PluginError(self.plugin, f"yields {a(item)}, not a pair of a time and a change")
            flaw = number_flaw(item[0], "the time of a change", least=last_s)
            if flaw is not None:
                raise PluginError(self.plugin, flaw)
            last_s = item[0]
            yield item
