"""Find state that a component changes during a run and that checkpoints do not contain."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from types import CodeType

import numpy as np
from torch import Tensor

from rdpfl_sim.components.registry import Target
from rdpfl_sim.contracts.equality import equal

VARIABLES = (bool, int, float, str, bytes, tuple, list, deque, dict, set, frozenset, np.ndarray, Tensor)
"""Types of the variables that are compared. Others, such as functions, are assumed to be constant."""


class HiddenVariables:
    """The global variables and the closure that a component uses, and its attributes, at one moment."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.before = _copied(_variables(target))

    def changed(self) -> str | None:
        """Return the name of a variable that has changed since then, or None.

        New entries of a mapping or a set are allowed, because a cache adds entries and never changes one.
        """
        now = _variables(self.target)
        return next((name for name in self.before if not _is_kept(self.before[name], now.get(name))), None)


class HiddenAttributes:
    """The attributes of an object that are not in its STATE, at one moment.

    Parts of the run that the object refers to, such as the kernel, are given as `shared`.
    """

    def __init__(self, component: object, listed: Iterable[str] = (), shared: Iterable[object] = ()) -> None:
        self.component = component
        self.listed = frozenset(listed)
        self.before = _copied(self._attributes(), (component, *shared))

    def changed(self) -> str | None:
        """Return the name of an attribute that has changed or is new since then, or None."""
        now = self._attributes()
        return next((name for name in now if not self._is_equal(name, now[name])), None)

    def _is_equal(self, name: str, value: object) -> bool:
        return name in self.before and equal(self.before[name], value)

    def _attributes(self) -> dict[str, object]:
        slots = [name for cls in type(self.component).__mro__ for name in getattr(cls, "__slots__", ())]
        names = [*getattr(self.component, "__dict__", ()), *slots]
        found = {name: getattr(self.component, name) for name in names if hasattr(self.component, name)}
        return {name: value for name, value in found.items() if name not in self.listed}


def _variables(target: Target) -> dict[str, object]:
    function = inspect.unwrap(target.func if isinstance(target, partial) else target)
    module = getattr(function, "__module__", "")
    of_module = vars(sys.modules[module]) if module in sys.modules else {}
    used = {name: of_module[name] for name in _used_names(function, of_module) if name in of_module}
    own = {name: value for name, value in vars(function).items() if not name.startswith("__")}
    closure = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    found = {**used, **own, **closure}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, VARIABLES) and not name.startswith("__")
    }


def _used_names(function: Target, of_module: Mapping[str, object]) -> set[str]:
    """Return the names in the code of a function or class, and in functions of its module that it uses."""
    names: set[str] = set()
    pending: list[object] = [function]
    while pending:
        item = pending.pop()
        for part in vars(item).values() if inspect.isclass(item) else (item,):
            code = getattr(inspect.unwrap(part) if callable(part) else part, "__code__", None)
            new = set() if code is None else {*_names_in(code)} - names
            names |= new
            used = (of_module[name] for name in new if name in of_module)
            pending += [each for each in used if getattr(each, "__module__", None) == function.__module__]
    return names


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _copied(values: Mapping[str, object], shared: Iterable[object] = ()) -> dict[str, object]:
    memo = {id(each): each for each in shared}
    copies = {}
    for name, value in values.items():
        try:
            copies[name] = deepcopy(value, memo)
        except (TypeError, RuntimeError):  # for instance a lock: it can neither be copied nor stored
            copies[name] = value
    return copies


def _is_kept(before: object, now: object) -> bool:
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() <= now.keys() and all(equal(before[key], now[key]) for key in before)
    if isinstance(before, set) and isinstance(now, set):
        return before <= now
    return equal(before, now)
