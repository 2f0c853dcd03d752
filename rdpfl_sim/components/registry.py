"""Components register by decorator, one registry per kind.

    ATTACKS = Registry("attack", AttackFacts)
    attack = ATTACKS.register

    @attack(needs="honest")
    def drag(view: View, *, strength: Positive = 2.0) -> Tensor: ...

The keyword-only parameters of a component are its TOML options. What the simulator must know beyond the
signature is an argument of the decorator, a field of the kind's `Facts`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, ParamSpec, TypeVar, overload

from rdpfl_sim.components.plugin import Plugin
from rdpfl_sim.errors import PluginError

_BUILT_IN = __name__.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Metadata of a component, set by its decorator."""

    name: str = ""
    """The name in TOML; by default that of the function, or that of the class in snake case."""


P = ParamSpec("P")
F = TypeVar("F", bound=Facts)
T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Registered(Generic[F]):
    """A component with its facts."""

    target: Callable[..., Any]
    facts: F
    plugin: Plugin | None
    """None if it comes with rdpfl-sim."""

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function or class behind the wrappers of its decorators."""
        function: Callable[..., Any] = inspect.unwrap(self.target)
        return function

    @property
    def origin(self) -> str:
        """The package or module that defines it, in words."""
        return "rdpfl-sim" if self.plugin is None else f"the {self.plugin.origin}"


class Registry(Mapping[str, Callable[..., Any]], Generic[P, F]):
    """The components of one kind by name; `register` is the decorator that adds one."""

    def __init__(self, kind: str, facts: Callable[P, F]) -> None:
        self.kind = kind
        self._facts = facts
        self._records: dict[str, Registered[F]] = {}

    @overload
    def register(self, target: T, /) -> T: ...

    @overload
    def register(self, *args: P.args, **facts: P.kwargs) -> Callable[[T], T]: ...

    def register(self, *args: Any, **facts: Any) -> Any:
        """Add a function or class; use it as `@register` or with facts as `@register(name="other")`."""
        if args:
            return self._add(self._facts(), *args)  # type: ignore[call-arg]
        return partial(self._add, self._facts(**facts))  # type: ignore[call-arg]

    def _add(self, facts: F, target: T) -> T:
        name = facts.name or _name_in_toml(target)
        module = str(getattr(target, "__module__", None))
        built_in = module.partition(".")[0] == _BUILT_IN
        plugin = None if built_in else Plugin(self.kind, name, f"module {module}", module)
        new, old = Registered(target, replace(facts, name=name), plugin), self._records.get(name)
        if old is not None and _place(old.target) != _place(target):
            raise name_taken(self.kind, name, [old.origin, new.origin])
        self._records[name] = new
        return target

    def record(self, name: str) -> Registered[F]:
        """Return a component with all that is known about it."""
        return self._records[name]

    def facts(self, name: str) -> F:
        """Return what the decorator of a component said."""
        return self._records[name].facts

    def facts_of(self, target: Callable[..., Any]) -> F:
        """Return the facts of a function, possibly wrapped or with options bound; defaults if unknown."""
        function = inspect.unwrap(target.func if isinstance(target, partial) else target)
        for record in self._records.values():
            if record.function is function:
                return record.facts
        return self._facts()  # type: ignore[call-arg]

    def assign(self, name: str, plugin: Plugin) -> None:
        """Note which package a component comes from."""
        self._records[name] = replace(self._records[name], plugin=plugin)

    def remove(self, name: str) -> None:
        """Remove a component, such as one that a test or a notebook has added."""
        del self._records[name]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._records[name].target

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def name_taken(kind: str, name: str, origins: list[str]) -> PluginError:
    """Return the error for a name that several packages use."""
    flaw = f"is defined by {' and by '.join(origins)}: rename or uninstall one"
    return PluginError(f"the {kind.replace('_', ' ')} {name!r}", flaw)


def _name_in_toml(target: Callable[..., Any]) -> str:
    name = target.__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() if inspect.isclass(target) else name


def _place(target: Callable[..., Any]) -> tuple[str, str]:
    """Return where a component is defined: defining it again there, as in a notebook, replaces it."""
    return target.__module__, target.__qualname__
