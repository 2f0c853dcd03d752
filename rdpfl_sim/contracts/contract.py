"""How plug-ins are tried before a run, and guarded while it lasts."""

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
    """What is wrong with a plug-in, in words that follow its name."""


class Contract:
    """What the components of one kind take and return; this one promises nothing.

    Components of most kinds are tried on `samples` before time zero. Those whose arguments cannot be made up,
    such as a partition's labels, are called twice whenever they are called (`rehearses`), which is only while
    a run is built.
    """

    rehearses = False
    samples_fit = True
    """Whether a component that rejects its options on a sample would also do so in the run."""
    may_draw = False
    """Whether drawing from torch's global generator is harmless."""

    unlike = "gives two answers for the same arguments"
    """What is said if two results differ."""

    def samples(self, target: Callable[..., Any]) -> Iterable[Callable[[], Arguments]]:
        """Makers of small arguments, as far as they can be made up; every call makes new ones."""
        return ()

    def flaw(self, arguments: Arguments, result: Any) -> str | None:
        """What is wrong with a result, in words that follow the plug-in's name; None if nothing is."""
        return None

    def observe(self, arguments: Arguments, result: Any) -> Any:
        """What two results for the same arguments must have in common; a result that acts is let to act.

        May raise a `FlawError`.
        """
        return result

    def unchanged(self, arguments: Arguments) -> Any:
        """The arguments that must not be changed."""
        return arguments

    def guarded(self, result: Any, plugin: Plugin) -> Any:
        """A result that checks what it does later."""
        return result


class Guard:
    """A plug-in's function or class; errors and invalid results name the plug-in."""

    def __init__(self, target: Callable[..., Any], plugin: Plugin, contract: Contract) -> None:
        self.target, self.plugin, self.contract = target, plugin, contract
        update_wrapper(self, target, assigned=("__module__", "__name__", "__qualname__", "__doc__"))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The target's result; a `PluginError` if it fails or is not what it should be."""
        if not self.contract.rehearses:
            return self._call(arguments, options)
        _, first = self._observe(deepcopy(arguments), arguments, options)
        result, second = self._observe(arguments, arguments, options)
        self._compare(first, second)
        return result

    def try_out(self, options: Mapping[str, Any]) -> None:
        """Call it twice on every sample; a `PluginError` if the calls differ, or change their arguments."""
        for make in self.contract.samples(self.target):
            _, first = self._observe(make(), make(), options)
            _, second = self._observe(make(), make(), options)
            self._compare(first, second)

    def _observe(
        self, arguments: Arguments, untouched: Arguments, options: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        """The result, and what can be compared of it."""
        contract, draws = self.contract, GlobalDraws()
        with draws:
            result = self._call(arguments, options)
            observed = caught(self.plugin, contract.observe, arguments, result)
        if not same(contract.unchanged(arguments), contract.unchanged(untouched)):
            raise PluginError(self.plugin, "changes what it is given; it must work on a copy")
        if draws.found is not None and not contract.may_draw:
            raise PluginError(self.plugin, draws.flaw)
        return result, observed

    def _compare(self, first: Any, second: Any) -> None:
        if not same(first, second):
            raise PluginError(self.plugin, f"{self.contract.unlike}, so no run could be repeated")

    def _call(self, arguments: Arguments, options: Mapping[str, Any]) -> Any:
        result = caught(self.plugin, self.target, *arguments, **options)
        flaw = caught(self.plugin, self.contract.flaw, arguments, result)
        if flaw is not None:
            raise PluginError(self.plugin, flaw)
        return self.contract.guarded(result, self.plugin)


def caught(plugin: Plugin, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a call into a plug-in; what it raises becomes a `PluginError`."""
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
    """Notes whether this thread draws from torch's global generator; other threads do not matter."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: str | None = None

    @property
    def flaw(self) -> str:
        """What to tell of a draw."""
        return (
            f"draws from torch's global generator ({self.found}), so no run could be repeated; "
            "draws need a torch.Generator with a seed of the run"
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


def same(first: Any, second: Any) -> bool:
    """Whether two values hold the same numbers. Of functions, generators and the like it cannot be seen."""
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor | np.ndarray):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        return bool(((first == second) | ((first != first) & (second != second))).all())
    if isinstance(first, nx.Graph):
        return list(first.nodes) == list(second.nodes) and list(first.edges) == list(second.edges)
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    parts = _parts(first)
    if parts:
        return all(same(getattr(first, part), getattr(second, part)) for part in parts)
    if isinstance(first, int | float | str | bytes | set | frozenset):
        return bool(first == second) or (first != first and second != second)
    return True


def _parts(value: Any) -> list[str]:
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return [*getattr(type(value), "__slots__", ())]


def vector_flaw(result: Any, like: Tensor, *, finite: bool) -> str | None:
    """What is wrong with a vector that should be like another one."""
    return tensor_flaw(result, tuple(like.shape), like, finite=finite)


def tensor_flaw(result: Any, shape: tuple[int, ...], like: Tensor, *, finite: bool) -> str | None:
    """What is wrong with a tensor that should have this shape, and be of the type and device of another."""
    if not isinstance(result, Tensor):
        return f"returns {a(result)}, not a tensor"
    if result.shape != shape:
        return f"returns a tensor of the shape {list(result.shape)}, not {list(shape)}"
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
    """What is wrong with a number that should be finite and within bounds; bool is no number here."""
    if type(result) not in (int, float):
        return f"returns {a(result)} as {what}, not a float"
    if not (least < result if above else least <= result) or not result <= most or result in (inf, -inf):
        bound = f"above {least:g}" if above else f"at least {least:g}"
        return f"returns {result} as {what}; it must be finite and {bound}" + (
            "" if most == inf else f", at most {most:g}"
        )
    return None


def a(value: Any) -> str:
    """What a value is, in words."""
    return "None" if value is None else f"an object of the type {type(value).__name__}"
