"""Contracts for the arguments and results of components, checked for plug-ins before and during a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import update_wrapper
from math import inf
from typing import ParamSpec, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from rdpfl_sim.components.registry import Plugin, Target
from rdpfl_sim.contracts.equality import equal
from rdpfl_sim.contracts.hidden_state import HiddenVariables
from rdpfl_sim.errors import OptionError, PluginError, ScenarioError, is_out_of_memory
from rdpfl_sim.inputs import Inputs

Arguments: TypeAlias = tuple[object, ...]
P = ParamSpec("P")
T = TypeVar("T")


NOT_STORED = "which checkpoints do not contain, so a resumed run would differ"
FROM_RNG = "draw random numbers from its argument `rng`"
MODIFIES = "modifies its arguments; it must work on a copy"


class FlawError(Exception):
    """A flaw in a plug-in. The message is printed after the plug-in's name."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The arguments and results of the components of one kind.

    Components of most kinds are called with `samples` before time zero. Components that need the run's
    arguments, such as partitions, are called twice instead (`called_twice`) while the run is built.
    """

    check: Callable[..., None]
    """Called with a result and the arguments; raises a `FlawError` if the result is invalid."""
    samples: Callable[[Target], Iterable[Arguments]] = lambda target: ()
    """Returns small example arguments for a component, newly created in each call."""
    called_twice: bool = False
    samples_are_typical: bool = True
    """Whether a component that rejects its options on a sample also rejects them in the run."""
    may_draw: bool = False
    """Whether drawing from torch's global generator is harmless."""
    observe: Callable[..., object] = lambda result, *arguments: result
    """Called with a result and the arguments; returns the value that must be equal in both calls."""
    mismatch: str = "returns two different results for the same arguments"
    """The message if the results of two calls differ."""
    randomness: str = "draw random numbers only from its arguments"
    """Advice for components that draw random numbers."""
    unchanged: Callable[..., Arguments] = lambda *arguments: arguments
    """Called with the arguments; returns those that must not be modified, and tensors inside of them."""
    guarded: Callable[..., object] = lambda plugin, result: result
    """Called with the plug-in and a result; returns the result, wrapped to check later calls to it."""
    check_declarations: Callable[[Target], None] = lambda component: None
    """Called with a component, its options bound; raises a `FlawError` if its declared facts are false."""

    @property
    def not_reproducible(self) -> str:
        """The end of a message about a random draw."""
        return f"so runs would not be reproducible; {self.randomness}"


class Guard:
    """Wraps a plug-in's function or class. Reports of errors and invalid results name the plug-in."""

    def __init__(self, target: Target, plugin: Plugin, contract: Contract) -> None:
        self.target, self.plugin, self.contract = target, plugin, contract
        update_wrapper(self, target, assigned=("__module__", "__name__", "__qualname__", "__doc__"))

    def __call__(self, *arguments: object, **options: object) -> object:
        """Return the target's result; raise a `PluginError` if the call fails or its result is invalid."""
        if self.contract.called_twice:
            return self._call_twice(deepcopy(arguments), arguments, arguments, options)
        return self._call(arguments, options)

    def try_out(self, options: Mapping[str, object]) -> None:
        """Call the target twice per sample; raise a `PluginError` if results differ or arguments change."""
        samples = (self.contract.samples(self.target) for _ in range(3))
        for first, second, untouched in zip(*samples, strict=True):
            self._call_twice(first, second, untouched, options)

    def _call_twice(
        self, first: Arguments, second: Arguments, untouched: Arguments, options: Mapping[str, object]
    ) -> object:
        """Return the second result. `first`, `second` and `untouched` are equal."""
        _, observed = self._observe(first, untouched, options)
        result, again = self._observe(second, untouched, options)
        if not equal(observed, again):
            raise PluginError(self.plugin, f"{self.contract.mismatch}, {self.contract.not_reproducible}")
        return result

    def _observe(
        self, arguments: Arguments, untouched: Arguments, options: Mapping[str, object]
    ) -> tuple[object, object]:
        """Return the result and its comparable part."""
        contract, draws = self.contract, GlobalDraws()
        variables = None if contract.called_twice else HiddenVariables(self.target)
        with draws:
            result = self._call(arguments, options)
            observed = call_plugin(self.plugin, contract.observe, result, *arguments)
        if not equal(contract.unchanged(*arguments), contract.unchanged(*untouched)):
            raise PluginError(self.plugin, MODIFIES)
        if draws.found is not None and not contract.may_draw:
            raise PluginError(self.plugin, f"{draws.flaw}, {contract.not_reproducible}")
        variable = None if variables is None else variables.changed()
        if variable is not None:
            raise PluginError(self.plugin, f"changes the variable {variable!r}, {NOT_STORED}")
        return result, observed

    def _call(self, arguments: Arguments, options: Mapping[str, object]) -> object:
        inputs = Inputs(*self.contract.unchanged(*arguments), bitwise=True)
        result: object = call_plugin(self.plugin, self.target, *arguments, **options)
        if inputs.are_modified():
            raise PluginError(self.plugin, MODIFIES)
        call_plugin(self.plugin, self.contract.check, result, *arguments)
        return self.contract.guarded(self.plugin, result)


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


class GlobalDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Detects random draws by this thread from torch's global generator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: str | None = None

    @property
    def flaw(self) -> str:
        """The message about a random draw."""
        return f"draws from torch's global generator ({self.found})"

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Arguments = (), kwargs: dict[str, object] | None = None
    ) -> object:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and not any(
            isinstance(value, torch.Generator) for value in (*args, *kwargs.values())
        ):
            self.found = func.overloadpacket.__name__.rstrip("_")
        return func(*args, **kwargs)


def check_type(result: object, type_: type[T], name: str) -> T:
    """Return a result; raise a `FlawError` if it has a different type."""
    if not isinstance(result, type_):
        raise FlawError(f"returns {describe(result)}, not {name}")
    return result


def check_tensor(result: object, shape: tuple[int, ...], like: Tensor, *, finite: bool) -> None:
    """Check that a result is a tensor of this shape, with the type and device of `like`."""
    tensor = check_type(result, Tensor, "a tensor")
    if tensor.shape != shape:
        raise FlawError(f"returns a tensor of shape {list(tensor.shape)}, not {list(shape)}")
    if tensor.dtype != like.dtype or tensor.device != like.device:
        found, needed = (f"{each.dtype} on {each.device}" for each in (tensor, like))
        raise FlawError(f"returns {found}, not {needed}")
    if tensor.requires_grad:
        raise FlawError("returns a tensor that requires a gradient; detach it")
    if finite and not bool(torch.isfinite(tensor).all()):
        raise FlawError("returns NaN or infinity for finite arguments")


def check_number(
    result: object, what: str, *, least: float = 0.0, most: float = inf, above: bool = False
) -> None:
    """Check that a result is a finite int or float within bounds; bool is not a number."""
    if not isinstance(result, int | float) or type(result) not in (int, float):
        raise FlawError(f"returns {describe(result)} as {what}, not a float")
    if not (least < result if above else least <= result) or not result <= most or result in (inf, -inf):
        bound = f"above {least:g}" if above else f"at least {least:g}"
        limit = "" if most == inf else f", at most {most:g}"
        raise FlawError(f"returns {result} as {what}; it must be finite and {bound}{limit}")


def describe(value: object) -> str:
    """Return the type of a value, as text for messages."""
    return "None" if value is None else f"an object of type {type(value).__name__}"
