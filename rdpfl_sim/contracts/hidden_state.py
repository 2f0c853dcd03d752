"""Find state that a component changes during a run and that checkpoints do not contain."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import partial

import numpy as np
from torch import Tensor

from rdpfl_sim.components.registry import Target
from rdpfl_sim.contracts.equality import equal

VARIABLES = (bool, int, float, str, bytes, tuple, list, deque, dict, set, frozenset, np.ndarray, Tensor)
"""Types of the variables that are compared. Others, such as functions, are assumed to be constant."""


class HiddenVariables:
    """The variables of a component's module, its closure and its own attributes, at one moment."""

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
    module = sys.modules.get(str(getattr(function, "__module__", None)))
    own = {name: value for name, value in vars(function).items() if not name.startswith("__")}
    closure = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    found = {**({} if module is None else vars(module)), **own, **closure}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, VARIABLES) and not name.startswith("__")
    }


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
