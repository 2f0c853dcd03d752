"""Try plug-ins before a run, and check their results during the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import update_wrapper
from math import inf
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rdpfl_sim.components.plugin import Plugin
from rdpfl_sim.errors import OptionError, PluginError, ScenarioError, is_out_of_memory

Arguments: TypeAlias = tuple[Any, ...]


class FlawError(Exception):
    """A flaw of a plug-in; the message follows the plug-in's name."""


class Contract:
    """What the components of one kind take and return; the base class checks nothing.

    Components of most kinds are tried on `samples` before time zero. Those that need the run's arguments,
    such as a partition its labels, are called twice instead (`called_twice`) while the run is built.
    """

    called_twice = False
    samples_are_typical = True
    """Whether a component that rejects its options on a sample also rejects them in the run."""
    may_draw = False
    """Whether drawing from torch's global generator is harmless."""

    mismatch = "returns two different results for the same arguments"
    """The message if two results differ."""

    def samples(self, target: Callable[..., Any]) -> Iterable[Callable[[], Arguments]]:
        """Return functions that make small arguments; every call makes new ones."""
        return ()

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """Return what is wrong with a result, in words that follow the plug-in's name, or None."""
        return None

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """Return what two results for the same arguments must have in common; may raise a `FlawError`."""
        return result

    def unchanged(self, arguments: Arguments) -> Any:
        """Return the arguments that must not be modified."""
        return arguments

    def declared_flaw(self, component: Callable[..., Any]) -> str | None:
        """Return what is wrong with the declarations of a component, given with its options, or None."""
        return None

    def guarded(self, result: Any, plugin: Plugin) -> Any:
        """Return a result that checks what it does later."""
        return result


class Guard:
    """A plug-in's function or class whose errors and invalid results name the plug-in."""

    def __init__(self, target: Callable[..., Any], plugin: Plugin, contract: Contract) -> None:
        self.target, self.plugin, self.contract = target, plugin, contract
        update_wrapper(self, target, assigned=("__module__", "__name__", "__qualname__", "__doc__"))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the target's result; raise a `PluginError` if the call fails or its result is invalid."""
        if not self.contract.called_twice:
            return self._call(arguments, options)
        _, first = self._observe(deepcopy(arguments), arguments, options)
        result, second = self._observe(arguments, arguments, options)
        self._compare(first, second)
        return result

    def try_out(self, options: Mapping[str, Any]) -> None:
        """Call it twice per sample; raise a `PluginError` if results differ or arguments are modified."""
        for make in self.contract.samples(self.target):
            _, first = self._observe(make(), make(), options)
            _, second = self._observe(make(), make(), options)
            self._compare(first, second)

    def _observe(
        self, arguments: Arguments, untouched: Arguments, options: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        """Return the result, and what can be compared of it."""
        contract, draws = self.contract, GlobalDraws()
        with draws:
            result = self._call(arguments, options)
            observed = call_plugin(self.plugin, contract.observe, arguments, result)
        if not equal(contract.unchanged(arguments), contract.unchanged(untouched)):
            raise PluginError(self.plugin, "modifies its arguments; it must work on a copy")
        if draws.found is not None and not contract.may_draw:
            raise PluginError(self.plugin, draws.flaw)
        return result, observed

    def _compare(self, first: Any, second: Any) -> None:
        if not equal(first, second):
            raise PluginError(self.plugin, f"{self.contract.mismatch}, so runs could not be repeated")

    def _call(self, arguments: Arguments, options: Mapping[str, Any]) -> Any:
        result = call_plugin(self.plugin, self.target, *arguments, **options)
        flaw = call_plugin(self.plugin, self.contract.flaw, arguments, result)
        if flaw is not None:
            raise PluginError(self.plugin, flaw)
        return self.contract.guarded(result, self.plugin)


def call_plugin(plugin: Plugin, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a call into a plug-in; what it raises becomes a `PluginError`."""
    try:
        return function(*arguments, **options)
    except (OptionError, ScenarioError, PluginError):
        raise
    except FlawError as error:
        raise PluginError(plugin, str(error)) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise PluginError(plugin, f"raises {plugin.explain(error)}") from error


class GlobalDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Detects draws of this thread from torch's global generator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: str | None = None

    @property
    def flaw(self) -> str:
        """The message about a draw."""
        return (
            f"draws from torch's global generator ({self.found}), so runs could not be repeated; "
            "draw from a torch.Generator with a seed of the run"
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and not any(
            isinstance(value, torch.Generator) for value in (*args, *kwargs.values())
        ):
            self.found = func.overloadpacket.__name__.rstrip("_")
        return func(*args, **kwargs)


def equal(first: Any, second: Any) -> bool:
    """Return whether two values hold the same numbers; functions and generators cannot be compared."""
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor | np.ndarray):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        return bool(((first == second) | ((first != first) & (second != second))).all())
    if isinstance(first, nx.Graph):
        return list(first.nodes) == list(second.nodes) and list(first.edges) == list(second.edges)
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    parts = _field_names(first)
    if parts:
        return all(equal(getattr(first, part), getattr(second, part)) for part in parts)
    if isinstance(first, int | float | str | bytes | set | frozenset):
        return bool(first == second) or (first != first and second != second)
    return True


def _field_names(value: Any) -> list[str]:
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return [*getattr(type(value), "__slots__", ())]


def vector_flaw(result: Any, like: Tensor, *, finite: bool) -> str | None:
    """Return what is wrong with a vector that should be like another one."""
    return tensor_flaw(result, tuple(like.shape), like, finite=finite)


def tensor_flaw(result: Any, shape: tuple[int, ...], like: Tensor, *, finite: bool) -> str | None:
    """Return what is wrong with a tensor of a required shape, type and device."""
    if not isinstance(result, Tensor):
        return f"returns {describe(result)}, not a tensor"
    if result.shape != shape:
        return f"returns a tensor of shape {list(result.shape)}, not {list(shape)}"
    if result.dtype != like.dtype or result.device != like.device:
        return f"returns {result.dtype} on {result.device}, not {like.dtype} on {like.device}"
    if result.requires_grad:
        return "returns a tensor that requires a gradient; detach it"
    if finite and not bool(torch.isfinite(result).all()):
        return "returns NaN or infinity for finite arguments"
    return None


def number_flaw(
    result: Any, what: str, *, least: float = 0.0, most: float = inf, above: bool = False
) -> str | None:
    """Return what is wrong with a number that should be finite and within bounds; bool is not a number."""
    if type(result) not in (int, float):
        return f"returns {describe(result)} as {what}, not a float"
    if not (least < result if above else least <= result) or not result <= most or result in (inf, -inf):
        bound = f"above {least:g}" if above else f"at least {least:g}"
        return f"returns {result} as {what}; it must be finite and {bound}" + (
            "" if most == inf else f", at most {most:g}"
        )
    return None


def describe(value: Any) -> str:
    """Return the type of a value in words."""
    return "None" if value is None else f"an object of type {type(value).__name__}"
