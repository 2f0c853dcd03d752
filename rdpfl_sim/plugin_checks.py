"""Check plug-ins before time zero, and their arguments and results at every call in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, update_wrapper, wraps
from itertools import chain, islice, permutations, product
from math import inf, isfinite
from types import UnionType
from typing import ParamSpec, TypeAlias, TypeVar, cast, get_args

import networkx as nx
import numpy as np
import orjson
import torch
from torch import Tensor, nn

from rdpfl_sim.aggregators import AGGREGATORS, PRE_AGGREGATORS, aggregate
from rdpfl_sim.aggregators.aggregation import aggregator_weights, pre_aggregate, pre_aggregator_weights
from rdpfl_sim.aggregators.aggregator import AggregatorFacts, FixedSeed, PreAggregatorFacts, generator_of
from rdpfl_sim.attacks import ATTACKS, View
from rdpfl_sim.components.registry import Plugin, Target
from rdpfl_sim.components.schema import Component, components_in
from rdpfl_sim.errors import OptionError, PluginError, ScenarioError, is_out_of_memory
from rdpfl_sim.execution.executor import Executor
from rdpfl_sim.inputs import Inputs, same_bits, tensors_in
from rdpfl_sim.learning.datasets.dataset import Dataset
from rdpfl_sim.learning.models import FlatModel, seeded
from rdpfl_sim.methods.base import (
    ClientServices,
    ClientView,
    Inbox,
    MessageStats,
    Method,
    Outgoing,
    Payload,
    State,
    Trained,
    TrainingTask,
    squares_finite,
)
from rdpfl_sim.methods.batching import Received, UpdateInput, update_in_batches
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.adversary.schedules import ScheduleView
from rdpfl_sim.world.adversary.timing import ScheduledMessage, TimingView
from rdpfl_sim.world.faults.fault import Change, fault_class
from rdpfl_sim.world.kernel import Kernel
from rdpfl_sim.world.network.latency import constant
from rdpfl_sim.world.network.links import MAX_ATTEMPTS, MESSAGE, ROUND, Link, lossless
from rdpfl_sim.world.network.transport import Transport
from rdpfl_sim.world.staleness import Staleness
from rdpfl_sim.world.waiting import Wait

Arguments: TypeAlias = tuple[object, ...]
Location: TypeAlias = tuple[int | str, ...]
P = ParamSpec("P")
T = TypeVar("T")

SIZE = 6
"""Size of the vectors for testing plug-ins."""
NUM_MESSAGES = (1, 2, 3, 8, 13)
"""Numbers of messages for testing aggregators."""
DRAWS = (1e-9, 0.25, 0.5, 0.75, 1 - 1e-9)
CLIENT = FixedSeed(5)
TOLERANCE = 1e-3

MODIFIES = "modifies its arguments; it must work on a copy"
NOT_REPRODUCIBLE = "so runs would not be reproducible"
FROM_RNG = "draw random numbers from its argument `rng`"
BANDWIDTH = ("transmit", "drop", "STATE", "CALLS")
FROM_DRAW = "its first argument is a random number between 0 and 1"


class FlawError(Exception):
    """A flaw in a plug-in. The message is printed after the plug-in's name."""


def require(condition: bool, flaw: str) -> None:
    """Raise a `FlawError` if a condition is false."""
    if not condition:
        raise FlawError(flaw)


def describe(value: object) -> str:
    """Return the type of a value, as text for messages."""
    return "None" if value is None else f"an object of type {type(value).__name__}"


def check_type(result: object, type_: type[T], name: str) -> T:
    """Return a result; raise a `FlawError` if it has a different type."""
    if not isinstance(result, type_):
        raise FlawError(f"returns {describe(result)}, not {name}")
    return result


def check_tensor(result: object, shape: Sequence[int], like: Tensor, *arguments: object) -> None:
    """Check the shape of a result, that its type and device are those of `like`, and that it is finite.

    Arguments that are not finite, or whose sums may overflow, excuse NaN and infinity.
    """
    tensor = check_type(result, Tensor, "a tensor")
    require(tensor.shape == shape, f"returns a tensor of shape {[*tensor.shape]}, not {[*shape]}")
    found, needed = (f"{each.dtype} on {each.device}" for each in (tensor, like))
    require(found == needed, f"returns {found}, not {needed}")
    require(not tensor.requires_grad, "returns a tensor that requires a gradient; detach it")
    given = [each.flatten() for each in tensors_in(arguments) if each.is_floating_point()]
    if all(map(squares_finite, given)):
        require(bool(torch.isfinite(tensor).all()), "returns NaN or infinity for finite arguments")


def check_number(
    result: object, what: str, *, least: float = 0.0, most: float = inf, above: bool = False
) -> None:
    """Check that a result is a finite int or float within bounds; bool is not a number."""
    if not isinstance(result, int | float) or type(result) not in (int, float):
        raise FlawError(f"returns {describe(result)} as {what}, not a float")
    is_within = (least < result if above else least <= result) and result <= most and isfinite(result)
    bounds = f"{'above' if above else 'at least'} {least:g}" + ("" if most == inf else f", at most {most:g}")
    require(is_within, f"returns {result} as {what}; it must be finite and {bounds}")


def equal(first: object, second: object) -> bool:
    """Return whether two values contain the same bits. Functions and generators count as equal."""
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return same_bits(first, second)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        same_form = (first.dtype, first.shape) == (second.dtype, second.shape)
        return same_form and first.tobytes() == second.tobytes()
    if isinstance(first, nx.Graph) and isinstance(second, nx.Graph):
        return equal([*first.nodes, *first.edges], [*second.nodes, *second.edges])
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, int | float | str | bytes | set | frozenset):
        return bool(first == second) or (first != first and second != second)
    names = [each.name for each in fields(first)] if is_dataclass(first) else getattr(first, "__slots__", ())
    return all(equal(getattr(first, name), getattr(second, name)) for name in names)


@dataclass(frozen=True, kw_only=True)
class Checks:
    """The checks of the components of one kind."""

    result: Callable[..., object]
    """Called with a result and the arguments; raises a `FlawError` if the result is invalid."""
    samples: Callable[[Target], Iterable[Arguments]] | None = None
    """Returns arguments for two calls before time zero. None for components that need those of the run, which
    are called twice while it is built."""
    samples_are_typical: bool = True
    """Whether a component that rejects its options on a sample also rejects them in the run."""
    observe: Callable[..., tuple[object, object]] = lambda result, *arguments: (result, result)
    """Called with a result and the arguments; returns the result and what must be equal in both calls."""
    during: Callable[[], AbstractContextManager[object]] = nullcontext
    """Returns the context of each call."""
    advice: str = "draw random numbers only from its arguments"
    """What to do if the results of two calls differ."""
    unchanged: Callable[..., Arguments] = lambda *arguments: arguments
    """Called with the arguments; returns those that must not be modified, and tensors inside of them."""
    guarded: Callable[..., object] = lambda plugin, result: result
    """Called with the plug-in and a result; returns the result, wrapped to check later calls to it."""
    declarations: Callable[[Target], None] = lambda component: None
    """Called with a component, its options bound; raises a `FlawError` if its declared facts are false."""


class Guard:
    """Wraps a plug-in's function or class. Reports of errors and invalid results name the plug-in."""

    def __init__(self, target: Target, plugin: Plugin, checks: Checks) -> None:
        self.target, self.plugin, self.checks = target, plugin, checks
        update_wrapper(self, target, assigned=("__module__", "__name__", "__qualname__", "__doc__"))

    def __call__(self, *arguments: object, **options: object) -> object:
        """Return the target's result; raise a `PluginError` if the call fails or its result is invalid."""
        call = self._call_twice if self.checks.samples is None else self._call
        return call(arguments, options)

    def try_out(self, options: Mapping[str, object]) -> None:
        """Call the target twice per sample; raise a `PluginError` if results differ or arguments change."""
        for arguments in () if self.checks.samples is None else self.checks.samples(self.target):
            self._call_twice(arguments, options)

    def _call_twice(self, arguments: Arguments, options: Mapping[str, object]) -> object:
        checks, first, before, observed = self.checks, deepcopy(arguments), deepcopy(arguments), []
        for given in (first, arguments):
            result = self._call(given, options)
            result, seen = call_plugin(self.plugin, checks.observe, result, *given)
            observed.append(seen)
            if not equal(checks.unchanged(*given), checks.unchanged(*before)):
                raise PluginError(self.plugin, MODIFIES)
        if not equal(*observed):
            flaw = f"returns two different results for the same arguments, {NOT_REPRODUCIBLE}"
            raise PluginError(self.plugin, f"{flaw}; {checks.advice}")
        return result

    def _call(self, arguments: Arguments, options: Mapping[str, object]) -> object:
        inputs = Inputs(*self.checks.unchanged(*arguments), bitwise=True)
        with self.checks.during():
            result: object = call_plugin(self.plugin, self.target, *arguments, **options)
        if inputs.are_modified():
            raise PluginError(self.plugin, MODIFIES)
        call_plugin(self.plugin, self.checks.result, result, *arguments)
        return self.checks.guarded(self.plugin, result)


def call_plugin(plugin: Plugin, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Call a plug-in and return its result; convert exceptions to `PluginError`."""
    try:
        return function(*arguments, **options)
    except (OptionError, ScenarioError, PluginError):
        raise
    except FlawError as error:
        raise PluginError(plugin, str(error)) from error
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise PluginError(plugin, f"raises {plugin.explain(error)}") from error


def plugins_in(part: object, location: Location = ()) -> Iterator[tuple[Location, Component]]:
    """Yield the plug-ins in a part of a scenario with their locations, nested ones first."""
    return (found for found in components_in(part, location) if type(found[1]).plugin is not None)


def guard_and_try(component: Component) -> str | None:
    """Test a plug-in with small inputs, and guard it during the run; return the problem, if any."""
    plugin, target = type(component).plugin, type(component).target
    assert plugin is not None
    checks = checks_of(plugin.kind, target)
    component.guard_with(partial(Guard, plugin=plugin, checks=checks))
    bound = component.bind()
    guard, options = (bound.func, bound.keywords) if isinstance(bound, partial) else (bound, {})
    assert isinstance(guard, Guard)
    try:
        guard.try_out(options)
        call_plugin(plugin, checks.declarations, bound)
    except PluginError as error:
        return str(error)
    except OptionError as error:
        if checks.samples_are_typical:
            return f"{plugin} rejects its option {error.option!r}: {error.message}"
    return None


def checks_of(kind: str, target: Target) -> Checks:
    """Return the checks of a component."""
    if kind == "attack" and ATTACKS.facts_of(target).sends_malformed:
        return replace(CHECKS[kind], result=returns(Tensor, "a tensor"))
    return CHECKS[kind]


# Attacks and aggregators


def _vector(seed: int) -> Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def _rows(num: int) -> Tensor:
    return torch.stack([_vector(10 + row) for row in range(num)])


def _views(attack: Target) -> Iterator[Arguments]:
    """Yield views with one and several honest updates, for methods that send directions or models."""
    needs = ATTACKS.facts_of(attack).needs
    nums_honest = (0,) if needs == "own" else (1, 4)
    knowledge = (False, True) if needs == "victim" else (False,)
    for num_honest, origin, knows_victim in product(nums_honest, (None, _vector(9)), knowledge):
        seen = _rows(num_honest) if num_honest else None
        victim, expected = (_vector(2), _vector(3)) if knows_victim else (None, None)
        yield (View(_vector(1), seen, range(num_honest), victim, expected, 2, 3, 5, origin),)


def _messages(facts: AggregatorFacts | PreAggregatorFacts) -> Iterator[Arguments]:
    """Yield one, two and more messages, for two clients if the aggregator expects rows."""
    for u in map(_rows, NUM_MESSAGES):
        own, draws = _vector(1), cast("object", generator_of(CLIENT, ""))
        if isinstance(facts, AggregatorFacts) and facts.rows:
            u, own, draws = u.repeat(2, 1, 1), own.repeat(2, 1), [generator_of(CLIENT, "") for _ in range(2)]
        needs_own = isinstance(facts, AggregatorFacts) and facts.needs_own
        yield (u, *[own] * needs_own, *[draws] * facts.needs_generator)


def _check_new_rows(result: object, u: Tensor, *others: object) -> None:
    found = f"shape {[*result.shape]}" if isinstance(result, Tensor) else describe(result)
    if not isinstance(result, Tensor) or result.dim() != 2 or len(result) == 0:
        raise FlawError(f"returns {found}; expected shape [m, {u.shape[1]}] with at least one row")
    check_tensor(result, (len(result), u.shape[1]), u, u)


def _check_weights(
    weights_of: Callable[..., Tensor | None], result_of: Callable[..., Tensor], component: Target
) -> None:
    """Check that the weighted sums of messages (m, d) are the aggregate (d,) or the new rows (k, d)."""
    for num in NUM_MESSAGES:
        u = _rows(num)[:, :1].repeat(1, SIZE)  # equal coordinates have equal weights
        weights = weights_of(component, u)
        if weights is None:
            return
        result = result_of(component, u)
        try:
            check_tensor(weights, (*result.shape[:-1], num), u.double())
            require(bool((weights >= 0).all()), "returns negative weights")
            is_sum = torch.allclose(weights @ u.double(), result.double(), TOLERANCE, TOLERANCE)
            require(is_sum, "returns weights for which the weighted sum of the messages is not the result")
        except FlawError as error:
            raise FlawError(f"declares a function `weights` that {error}") from error


# Data sets, partitions, models and graphs


def _check_data(result: object, rng: np.random.Generator) -> None:
    data = check_type(result, Dataset, "a Dataset")
    for part, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        types = f"returns x_{part} as {x.dtype} and y_{part} as {y.dtype}; needed: float32 and int64"
        require(x.dtype == torch.float32 and y.dtype == torch.int64, types)
        fits = x.dim() in (2, 4) and x.shape[1:] == data.shape and y.shape == (len(x),) and len(x) > 0
        found = f"returns x_{part} of shape {[*x.shape]} and y_{part} of {[*y.shape]}"
        require(fits, f"{found}; needed: [n, features] or [n, channels, height, width], and [n], n >= 1")
        in_range = bool(y.min() >= 0 and y.max() < data.num_classes)
        require(in_range, f"returns a label in y_{part} outside 0 to {data.num_classes - 1}")
        require(bool(torch.isfinite(x).all()), f"returns NaN or infinity in x_{part}")


def _check_partition(result: object, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> None:
    if not isinstance(result, list) or len(result) != num_clients:
        raise FlawError(f"returns {describe(result)}, not a list of {num_clients} arrays, one per client")
    for client, shard in enumerate(result):
        is_flat = isinstance(shard, np.ndarray) and shard.dtype == np.int64 and shard.ndim == 1
        require(is_flat, f"returns {describe(shard)} for client {client}, not a flat array of int64")
        require(len(shard) > 0, f"leaves client {client} without examples")
    assigned = np.concatenate(result)
    in_range = bool(assigned.min() >= 0 and assigned.max() < len(labels))
    require(in_range, f"returns a position outside 0 to {len(labels) - 1}")
    require(len(np.unique(assigned)) == len(assigned), "assigns an example twice")


def _check_model(result: object, shape: Sequence[int], num_classes: int) -> None:
    module = check_type(result, nn.Module, "a torch.nn.Module")
    require(next(module.parameters(), None) is not None, "has no parameters to train")
    for name, p in module.named_parameters():
        flaw = f"has a parameter {name} that is {p.dtype} or frozen; all must be float32 and trained"
        require(p.dtype == torch.float32 and p.requires_grad, flaw)


def _weights_and_logits(
    module: nn.Module, shape: Sequence[int], num_classes: int
) -> tuple[nn.Module, Arguments]:
    """Return the module, and its weights and logits, which must not depend on other examples."""
    model = FlatModel(lambda: deepcopy(module))  # rejects buffers
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    logits, again, alone = model(x), model(x), model(x[:1])
    found = [*logits.shape] if isinstance(logits, Tensor) else describe(logits)
    require(found == [3, num_classes], f"returns {found} for a batch of 3, not {[3, num_classes]}")
    check_tensor(logits.detach(), logits.shape, x, x)
    flaw = f"returns two different results for the same batch, {NOT_REPRODUCIBLE}"
    require(equal(logits, again), flaw)
    flaw = "returns different results for an example in a batch and on its own, as batch normalisation does"
    require(torch.allclose(alone, logits[:1], TOLERANCE, TOLERANCE), flaw)
    _check_draws(model, x)
    return module, (model.vector, logits.detach())


def _check_draws(model: FlatModel, x: Tensor) -> None:
    """Check that in training, only the layers of dropout draw random numbers."""
    results, draws = [], False
    for _ in range(2):
        with seeded(0) as generator, model.training(1):
            state = generator.get_state()
            results.append(model(x))
            draws |= not equal(state, generator.get_state())
    flaw = f"draws random numbers in training, {NOT_REPRODUCIBLE}; only layers such as nn.Dropout may do so"
    require(not draws and equal(*results), flaw)


def _check_topology(result: object, num_clients: int, rng: np.random.Generator) -> None:
    if not isinstance(result, nx.Graph) or result.is_directed() or result.is_multigraph():
        expected = "an undirected networkx.Graph without parallel links"
        raise FlawError(f"returns {describe(result)}, not {expected}")
    has_clients = set(result) == {*range(num_clients)} and all(type(node) is int for node in result)
    flaw = f"returns a graph whose nodes are not the clients 0 to {num_clients - 1}, as int"
    require(has_clients, flaw)
    has_loop = any(i == j for i, j in result.edges)
    require(not has_loop, "returns a graph in which a client is linked to itself")


def _check_placement(
    result: object, graph: nx.Graph, num: int, rng: np.random.Generator, taken: Iterable[int]
) -> None:
    chosen = check_type(result, list, "a list of clients")
    require(all(type(client) is int for client in chosen), f"returns {chosen}, not a list of clients")
    is_valid = len(chosen) == num == len(set(chosen)) and set(chosen) <= set(graph) - set(taken)
    require(is_valid, f"returns {chosen}; it must return {num} different clients that are still free")


# Time: links, waiting, timing attacks and faults


def _links() -> Iterator[Arguments]:
    for place, now_s in product(range(4), (0.0, 1000.0)):
        yield Link(0, 1, key=7, latency=constant, loses=lossless), ROUND + place * MESSAGE, now_s


def _constants(link: Link, draw: int, now_s: float) -> Arguments:
    """Return what a loss must not change: everything except the state of its link."""
    return *(getattr(link, each.name) for each in fields(link) if each.name not in Link.STATE), draw, now_s


def _timing_views() -> Iterator[Arguments]:
    for round_, deadline_s in product((1, 8), (None, 30.0)):
        past = {past: Payload(_vector(past)) for past in range(1, round_ + 1)}
        yield (TimingView(round_, 2, 20.0, deadline_s, past, key=7, num_clients=4),)


def _check_timing_attack(result: object, view: TimingView) -> None:
    if not isinstance(result, list) or not all(isinstance(each, ScheduledMessage) for each in result):
        raise FlawError(f"returns {describe(result)}, not a list of ScheduledMessage")
    for message in result:
        stamp, payload = describe(message.stamp), describe(message.payload)
        require(type(message.stamp) is int, f"returns a message whose stamp is {stamp}, not a whole number")
        is_payload = isinstance(message.payload, Payload)
        require(is_payload, f"returns a message whose payload is {payload}, not a Payload")
        check_number(message.delay_s, "the delay of a message")


def _checked_changes(plugin: Plugin, schedule: Iterable[object]) -> Iterator[tuple[float, Change]]:
    """Yield the changes of a fault; each is checked when it is due."""
    changes, last_s = call_plugin(plugin, iter, schedule), 0.0
    while (item := call_plugin(plugin, next, changes, None)) is not None:
        last_s, change = call_plugin(plugin, _checked_change, item, last_s)
        yield last_s, change


def _checked_change(item: object, last_s: float) -> tuple[float, Change]:
    """Return a change and its time, if it can be recorded."""
    if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], get_args(Change)):
        raise FlawError(f"yields {describe(item)}, not a pair of a time and a change")
    time_s, change = item
    check_number(time_s, "the time of a change", least=last_s)
    fault, record = change.fault, orjson.loads(orjson.dumps(change.fields))
    known, condition = fault_class(fault.KIND) or type(fault), fault.CONDITION
    is_unique = known.CONDITION is condition
    require(is_unique, f"has the KIND {fault.KIND!r} in the records, which {known.__name__} already uses")
    subjects = "links" if condition is None else condition.subjects
    require(subjects in record, f"needs the field {subjects!r} in its record: its CONDITION is {condition}")
    return time_s, change


# Methods

STEPS: Mapping[str, tuple[str, *tuple[type | UnionType, ...]]] = {
    "init": ("a State", State),
    "training": ("a TrainingTask", TrainingTask),
    "trained_model": ("a tensor", Tensor),
    "payload": ("a State and an Outgoing", State, Outgoing),
    "update": ("a State and a mapping", State, Mapping),
    "message_stats": ("a MessageStats", MessageStats),
    "shares": ("a tensor", Tensor),  # of methods that exchange models
    "reference_point": ("a tensor or None", Tensor | None),
    "predicted_direction": ("a tensor or None", Tensor | None),
}
"""The results of a method's steps."""


def _check_step(step: str, result: object, *arguments: object) -> None:
    expected, *types = STEPS[step]
    parts = result if isinstance(result, tuple) and len(types) > 1 else (result,)
    is_valid = len(parts) == len(types) and all(map(isinstance, parts, types))
    require(is_valid, f"returns {describe(result)} from '{step}', not {expected}")
    w = arguments[0].w if isinstance(arguments[0], State | Trained) else arguments[0]
    assert isinstance(w, Tensor)
    shape, rows = w.shape[:1], "row per client"
    if step in ("message_stats", "shares"):
        [shape] = (each.weights.shape for each in arguments if isinstance(each, Inbox))
        rows = "number per message"
    if step == "trained_model":
        check_tensor(result, w.shape, w, *arguments)
    for part in parts:
        if isinstance(part, State):
            try:
                check_tensor(part.w, w.shape, w, *arguments)
            except FlawError as error:
                raise FlawError(f"{error}, as the models in the state that '{step}' returns") from error
        values = [*part.values()] if isinstance(part, Mapping) else [part]
        are_tensors = not isinstance(part, Mapping) or all(isinstance(value, Tensor) for value in values)
        require(are_tensors, f"reports values from '{step}' that are not tensors")
        for tensor in tensors_in(values):
            flaw = f"returns a tensor of shape {[*tensor.shape]} from '{step}', not {[*shape]}, one {rows}"
            require(tensor.shape[: len(shape)] == shape, flaw)


def check_steps(plugin: Plugin, method: Method) -> Method:
    """Make a method check the results of its steps, and return it."""
    cls = type(method)
    steps = {name: _checked_step(plugin, name, getattr(cls, name)) for name in STEPS if hasattr(cls, name)}
    place = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}  # used by checkpoints
    object.__setattr__(method, "__class__", type(cls.__name__, (cls,), {**place, **steps}))
    return method


def _checked_step(plugin: Plugin, name: str, step: Target) -> Target:
    @wraps(step)
    def call(self: Method, *arguments: object, **named: object) -> object:
        weights = [each.weights for each in arguments if isinstance(each, Inbox)]
        inputs = Inputs(*arguments, *weights, bitwise=True)
        result: object = call_plugin(plugin, step, self, *arguments, **named)
        if inputs.are_modified():
            raise PluginError(plugin, MODIFIES)
        call_plugin(plugin, _check_step, name, result, *arguments, *named.values())
        return result

    return call


def rehearse(method: Method, plugin: Plugin, w: Tensor, services: ClientServices) -> None:
    """Run rounds of client 0 with zero, one and several messages; raise a `PluginError` on a mismatch.

    All results must be the same when repeated, and those of the update also in a batch of two clients.
    """
    for num_messages in (0, 1, 3) if method.exchanges else (0,):
        first, second, in_batch = (
            call_plugin(plugin, _round, method, w, services, num_messages, num_clients)
            for num_clients in (1, 1, 2 if method.batched else 1)
        )
        if not equal(first, second):
            flaw = f"returns two different results for the same state and messages, {NOT_REPRODUCIBLE}"
            raise PluginError(plugin, f"{flaw}; draw from a generator seeded with client.seed(purpose)")
        if not equal(first, in_batch):
            flaw = "returns a different result for a client in a batch"
            raise PluginError(plugin, f"{flaw}; rows must be independent, or batched = False")


def _round(
    method: Method, w: Tensor, services: ClientServices, num_messages: int, num_clients: int
) -> Arguments:
    """Return the results of the first client's steps. Clients differ in training results and messages."""
    client = ClientView(0, 1, 2, services)
    start = method.init(w.unsqueeze(0), [client])
    task = method.training(start)
    inputs = []
    for first in range(0, 10 * num_clients, 10):
        own, *others = (_sent(method, start, task, w, first + k, client) for k in range(num_messages + 1))
        inputs.append(UpdateInput(own[0], own[1], [Received(each[2], 1.0, 2) for each in others], client))
    updated = update_in_batches(method, inputs, with_message_stats=True)[0]
    points = (
        *(method.reference_point(updated.state), method.predicted_direction(updated.state)),
        method.trained_model(inputs[0].trained),
    )
    return start, task, inputs[0][:3], updated, points


def _sent(
    method: Method, start: State, task: TrainingTask, w: Tensor, number: int, client: ClientView
) -> tuple[State, Trained, Payload]:
    """Return the state, a plausible training result, which differs for every number, and the payload."""
    step = torch.randn(w.shape, generator=torch.Generator().manual_seed(number)).to(w.device)
    second_w = None if task.second_w is None else task.second_w - 0.01 * step
    trained = Trained((w - 0.01 * step).unsqueeze(0), (1,), (0.0,), (1.0,), second_w)
    state, outgoing = method.payload(start, trained, [client])
    masks = outgoing.masks
    return state, trained, Payload(outgoing.vectors[0], None if masks is None else masks[0])


def returns(type_: type, name: str, **bounds: tuple[float, float]) -> Callable[..., None]:
    """Return a check for this type and for numbers in the fields of a result."""

    def check(result: object, *arguments: object) -> None:
        check_type(result, type_, name)
        for field, (least, most) in bounds.items():
            if getattr(result, field) is not None:
                check_number(getattr(result, field), field, least=least, most=most)

    return check


DELAY = Checks(  # of a geography
    result=lambda seconds, *ends: check_number(seconds, "seconds"), samples=lambda target: ()
)
CHECKS: Mapping[str, Checks] = {
    "attack": Checks(
        result=lambda m, view: check_tensor(m, view.own.shape, view.own, view),
        samples=_views,
        advice="draw with generator=view.generator",
        unchanged=lambda view: (replace(view, memory={}),),  # attacks may modify their memory
    ),
    "equivocation": Checks(
        result=lambda m, own, message, draw: check_tensor(m, message.shape, message, own, message),
        samples=lambda target: [(_vector(1), _vector(2), draw) for draw in (0.1, 0.9)],
        advice="its third argument is a random number between 0 and 1",
    ),
    "aggregator": Checks(
        result=lambda mean, u, *others: check_tensor(mean, (*u.shape[:-2], u.shape[-1]), u, u),
        samples=lambda target: _messages(AGGREGATORS.facts_of(target)),
        advice="declare it with @aggregator(needs_generator=True) and draw from its last argument",
        declarations=partial(
            _check_weights,
            lambda component, u: aggregator_weights(component, u, _vector(1), CLIENT),
            lambda component, u: aggregate(component, u, _vector(1), CLIENT),
        ),
    ),
    "pre_aggregator": Checks(
        result=_check_new_rows,
        samples=lambda target: _messages(PRE_AGGREGATORS.facts_of(target)),
        advice="declare it with @pre_aggregator(needs_generator=True) and draw from its last argument",
        declarations=partial(
            _check_weights,
            lambda component, u: pre_aggregator_weights(component, u, CLIENT),
            lambda component, u: pre_aggregate(component, u, CLIENT, 0),
        ),
    ),
    "method": Checks(result=returns(Method, "a Method"), samples=lambda target: (), guarded=check_steps),
    "executor": Checks(result=returns(Executor, "an Executor"), samples=lambda target: ()),
    "data": Checks(result=_check_data, advice=FROM_RNG),
    "partition": Checks(result=_check_partition, advice=FROM_RNG),
    "model": Checks(
        result=_check_model,
        observe=_weights_and_logits,
        during=partial(seeded, 0),
        advice="draw initial weights with the functions of torch",
    ),
    "learning_rate_schedule": Checks(
        result=lambda factor, *arguments: check_number(factor, "a factor", above=True),
        samples=lambda target: [(t, rounds) for rounds in (1, 2, 50) for t in (0, rounds // 2, rounds - 1)],
    ),
    "topology": Checks(result=_check_topology, advice=FROM_RNG),
    "placement": Checks(result=_check_placement, advice=FROM_RNG),
    "latency": Checks(
        result=lambda seconds, u: check_number(seconds, "seconds"),
        samples=lambda target: product(DRAWS),
        advice=FROM_DRAW,
    ),
    "compute": Checks(
        result=lambda seconds, u, client: check_number(seconds, "seconds", above=True),
        samples=lambda target: product(DRAWS, range(2)),
        samples_are_typical=False,
        advice=FROM_DRAW,
    ),
    "geography": Checks(
        result=lambda delay_s, *arguments: require(
            callable(delay_s), f"returns {describe(delay_s)}, not a function of sender and recipient"
        ),
        samples=lambda target: [(4, Streams(1))],
        samples_are_typical=False,
        observe=lambda delay_s, *arguments: (delay_s, [delay_s(*pair) for pair in permutations(range(4), 2)]),
        advice="draw from `streams.generator(purpose)`, with the second argument",
        guarded=lambda plugin, delay_s: Guard(delay_s, plugin, DELAY),
    ),
    "loss": Checks(
        result=returns(bool, "True or False"),
        samples=lambda target: _links(),
        advice="draw from a generator seeded with `link.key` and the second argument",
        unchanged=_constants,
    ),
    "bandwidth": Checks(
        result=lambda bandwidth, kernel: require(
            all(hasattr(bandwidth, name) for name in BANDWIDTH),
            f"returns {describe(bandwidth)}, which does not have all of {', '.join(BANDWIDTH)}",
        ),
        samples=lambda target: [(Kernel(initial_time=0.0),)],
    ),
    "transport": Checks(
        result=returns(Transport, "a Transport", max_attempts=(1, MAX_ATTEMPTS), backoff=(1, inf)),
        samples=lambda target: [()],
    ),
    "wait": Checks(
        result=returns(Wait, "a Wait", fraction=(0, 1), timeout_s=(0, inf)), samples=lambda target: [()]
    ),
    "staleness": Checks(
        result=returns(Staleness, "a Staleness", max_age=(0, inf), decay=(0, 1)), samples=lambda target: [()]
    ),
    "timing_attack": Checks(
        result=_check_timing_attack,
        samples=lambda target: _timing_views(),
        advice="draw from a generator seeded with `view.key`",
        unchanged=lambda view: (view, *(payload.vector for payload in view.past.values())),
    ),
    "attack_schedule": Checks(
        result=returns(bool, "True or False"),
        samples=lambda target: [
            (ScheduleView(8, 20.0, each, num_trusted=lambda: 10),) for each in (False, True)
        ],
    ),
    "fault": Checks(
        result=returns(Iterable, "an iterator of changes"),
        observe=lambda schedule, context: (chain(head := [*islice(schedule, 100)], schedule), head),
        advice="draw from a generator seeded with `context.key`",
        guarded=_checked_changes,
    ),
}
"""The checks of every kind of component."""
