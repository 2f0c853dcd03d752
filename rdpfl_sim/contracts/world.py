"""The contracts of graphs, links, schedules, waiting and faults."""

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
from rdpfl_sim.contracts.contract import (
    Arguments,
    Contract,
    FlawError,
    Guard,
    call_plugin,
    describe,
    number_flaw,
)
from rdpfl_sim.contracts.fault_effect import effect_flaw
from rdpfl_sim.contracts.vectors import vector
from rdpfl_sim.errors import PluginError
from rdpfl_sim.methods.payload import Payload
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
        """Check that it is a finite number of seconds."""
        return number_flaw(result, "seconds", above=self.above)


class LatencyContract(Seconds):
    """Seconds from a uniform draw."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return draws from end to end."""
        for draw in DRAWS:
            yield partial(tuple, [draw])


class ComputeContract(Seconds):
    """Seconds from a uniform draw and a client."""

    above = True
    samples_are_typical = False

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return draws from end to end, for two clients."""
        for draw, client in product(DRAWS, range(2)):
            yield partial(tuple, [draw, client])


class GeographyContract(Contract):
    """A function of sender and recipient that returns seconds, from the number of clients and the streams."""

    samples_are_typical = False

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return a few clients."""
        yield lambda: (NUM_CLIENTS, Streams(1))

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that it can be called."""
        return (
            None
            if callable(result)
            else f"returns {describe(result)}, not a function of sender and recipient"
        )

    def guarded(self, result: Any, plugin: Plugin) -> Any:
        """Return the function, which checks every delay."""
        return Guard(result, plugin, Seconds())

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """Return the delay of every link."""
        return [result(i, j) for i, j in product(range(NUM_CLIENTS), repeat=2) if i != j]


class TrueOrFalse(Contract):
    """True or False."""

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check the type; numbers and arrays are rejected."""
        return None if type(result) is bool else f"returns {describe(result)}, not True or False"


class LossContract(TrueOrFalse):
    """Whether a link loses a message."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return several messages, early and late."""
        for place, now_s in product(range(4), (0.0, 1000.0)):
            yield partial(self._message, place, now_s)

    def unchanged(self, arguments: Arguments) -> Any:
        """Return all but the link, in which a loss may keep its state."""
        return arguments[1:]

    def _message(self, place: int, now_s: float) -> Arguments:
        link = Link(0, 1, key=7, latency=constant, loses=lossless)
        return link, ROUND + place * MESSAGE, now_s


class ScheduleContract(TrueOrFalse):
    """A decision whether to attack now."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return the first round and a later one, with and without a partition."""
        for round_, partitioned in product((1, 8), (False, True)):
            yield partial(self._view, round_, partitioned)

    def _view(self, round_: int, partitioned: bool) -> Arguments:
        return (ScheduleView(round_, 2.5 * round_, partitioned=partitioned, num_trusted=lambda: 10 * round_),)


class TimingAttackContract(Contract):
    """Any number of scheduled messages, from a message that is due."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return the first round and a later one, with and without a known deadline."""
        for round_, deadline_s in product((1, 8), (None, 30.0)):
            yield partial(self._view, round_, deadline_s)

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that it is a list of messages that can be sent."""
        if not isinstance(result, list) or not all(
            isinstance(message, ScheduledMessage) for message in result
        ):
            return f"returns {describe(result)}, not a list of ScheduledMessage"
        for message in result:
            if type(message.stamp) is not int:
                return f"returns a message whose stamp is {describe(message.stamp)}, not a whole number"
            if not isinstance(message.payload, Payload):
                return f"returns a message whose payload is {describe(message.payload)}, not a Payload"
            flaw = number_flaw(message.delay_s, "the delay of a message")
            if flaw is not None:
                return flaw
        return None

    def _view(self, round_: int, deadline_s: float | None) -> Arguments:
        past = {past: Payload(vector(past)) for past in range(1, round_ + 1)}
        return (TimingView(round_, 2, 20.0, deadline_s, past, key=7, num_clients=NUM_CLIENTS),)


class NoArguments(Contract):
    """An object of a known type, from no arguments."""

    type: type[Any]

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return one call without arguments."""
        yield tuple

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check type and values."""
        if not isinstance(result, self.type):
            return f"returns {describe(result)}, not a {self.type.__name__}"
        return next((flaw for flaw in self.flaws(result) if flaw is not None), None)

    def flaws(self, result: Any) -> Iterable[str | None]:
        """Yield what is wrong with the values, None where nothing is."""
        raise NotImplementedError


class WaitContract(NoArguments):
    """A `Wait`."""

    type = Wait

    def flaws(self, result: Any) -> Iterable[str | None]:
        """Check the fraction, the timeout, and the number of senders."""
        yield number_flaw(result.fraction, "fraction", most=1)
        if result.timeout_s is not None:
            yield number_flaw(result.timeout_s, "timeout_s", above=True)
        for num in range(4):
            needed = result.num_needed(num)
            if type(needed) is not int or not 0 <= needed <= num:
                yield f"waits for {needed} of {num} neighbours"


class StalenessContract(NoArguments):
    """A `Staleness`."""

    type = Staleness

    def flaws(self, result: Any) -> Iterable[str | None]:
        """Check the greatest age and the weights."""
        if type(result.max_age) is not int or result.max_age < 0:
            yield f"returns {result.max_age!r} as max_age, not a whole number of at least 0"
        for age in range(-1, 4):
            yield number_flaw(result.weight(age), f"the weight of a message of age {age}", most=1)


class TransportContract(NoArguments):
    """A `Transport`."""

    type = Transport

    def flaws(self, result: Any) -> Iterable[str | None]:
        """Check the number of attempts and the times between them."""
        if type(result.max_attempts) is not int or not 1 <= result.max_attempts <= MAX_ATTEMPTS:
            yield f"returns {result.max_attempts!r} as max_attempts; allowed: 1 to {MAX_ATTEMPTS}"
        yield number_flaw(result.timeout_s, "timeout_s", above=result.retransmits)
        yield number_flaw(result.backoff, "backoff", least=1)
        yield number_flaw(result.acknowledgement_bytes, "acknowledgement_bytes")


@dataclass
class SampleMessage:
    """A message with what a bandwidth reads of it."""

    sender: int
    recipient: int
    size_bytes: float


class BandwidthContract(Contract):
    """An object that transmits messages on a kernel."""

    def samples(self, target: Callable[..., Any]) -> Iterator[Callable[[], Arguments]]:
        """Return an empty kernel."""
        yield lambda: (Kernel(initial_time=0.0),)

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that it transmits and can be written into a checkpoint."""
        if not callable(getattr(result, "transmit", None)):
            return f"returns {describe(result)}, which has no method 'transmit'"
        for name in ("STATE", "CALLS"):
            if not isinstance(getattr(result, name, None), tuple):
                return f"has no tuple {name}, so checkpoints could not hold its state"
        return None

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """Return the times at which three messages have been transmitted."""
        kernel: Kernel = arguments[0]
        through: list[tuple[float, int]] = []
        messages = [SampleMessage(0, 1, 1000.0), SampleMessage(0, 2, 0.0), SampleMessage(1, 2, 1e6)]
        for message in messages:
            result.transmit(message, lambda done: through.append((kernel.now, messages.index(done))))
        with suppress(EmptySchedule):
            for _ in range(MAX_EVENTS):
                kernel.step()
        if sorted(number for _, number in through) != [0, 1, 2]:
            raise FlawError(f"calls 'done' {len(through)} times for 3 messages; it must do so once for each")
        return through


class TopologyContract(Contract):
    """An undirected simple graph of the clients 0, 1, ..., from their number and a generator."""

    called_twice = True

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that it is a simple graph of the clients."""
        num_clients = arguments[0]
        if not isinstance(result, nx.Graph) or result.is_directed() or result.is_multigraph():
            return f"returns {describe(result)}, not an undirected networkx.Graph without parallel links"
        if len(result) != num_clients or not all(type(n) is int and 0 <= n < num_clients for n in result):
            return f"returns a graph whose nodes are not the clients 0 to {num_clients - 1}, as int"
        if any(i == j for i, j in result.edges):
            return "returns a graph in which a client is linked to itself"
        return None


class PlacementContract(Contract):
    """Clients that are Byzantine, from the graph, their number, a generator and those that are taken."""

    called_twice = True

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that they are free clients, and as many as required."""
        graph, num, _, taken = arguments
        free = set(graph) - set(taken)
        if not isinstance(result, list) or not all(type(client) is int for client in result):
            return f"returns {describe(result)}, not a list of clients"
        if len(result) != num or len(set(result)) != num or not set(result) <= free:
            return f"returns {result}; it must return {num} different clients that are not taken"
        return None


class FaultContract(Contract):
    """Changes and their times in order, possibly without end."""

    called_twice = True

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Check that it can be iterated over."""
        return (
            None
            if isinstance(result, Iterable)
            else f"returns {describe(result)}, not an iterator of changes"
        )

    def guarded(self, result: Any, plugin: Plugin) -> Any:
        """Return the changes, each checked before it takes effect."""
        return CheckedSchedule(plugin, result)

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """Return the first changes."""
        return result.head(HEAD)


class CheckedSchedule:
    """The changes of a fault, each checked when it is due."""

    def __init__(self, plugin: Plugin, schedule: Iterable[tuple[float, Change]]) -> None:
        self.plugin = plugin
        self._changes = self._checked(schedule)
        self._ahead: list[tuple[float, Change]] = []

    def head(self, num: int) -> list[tuple[float, Change]]:
        """Return the first changes, before any has been taken."""
        self._ahead = list(islice(self._changes, num))
        return self._ahead

    def __iter__(self) -> Iterator[tuple[float, Change]]:
        return chain(self._ahead, self._changes)

    def _checked(self, schedule: Iterable[tuple[float, Change]]) -> Iterator[tuple[float, Change]]:
        changes, last_s = call_plugin(self.plugin, iter, schedule), 0.0
        while (item := call_plugin(self.plugin, next, changes, None)) is not None:
            if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], get_args(Change)):
                raise PluginError(self.plugin, f"yields {describe(item)}, not a pair of a time and a change")
            flaw = number_flaw(item[0], "the time of a change", least=last_s)
            flaw = flaw or call_plugin(self.plugin, effect_flaw, item[1])
            if flaw is not None:
                raise PluginError(self.plugin, flaw)
            last_s = item[0]
            yield item
