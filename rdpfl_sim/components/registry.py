"""Registries of components, one per kind. A decorator adds a component.

    ATTACKS = Registry("attack", AttackFacts)
    attack = ATTACKS.register

    @attack(needs="honest")
    def drag(view: View, *, strength: Positive = 2.0) -> Tensor: ...

The keyword-only parameters of a component are its TOML options. Further metadata is passed as arguments of
the decorator, which are the fields of the kind's `Facts`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from pkgutil import iter_modules
from traceback import walk_tb
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, overload

from rdpfl_sim.errors import PluginError

_BUILT_IN = __name__.partition(".")[0]


def import_modules(package: str, path: Iterable[str]) -> None:
    """Import every module of a package to register its components.

    A new file in the package needs no entry in a list.
    """
    for module in iter_modules(path):
        import_module(f"{package}.{module.name}")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Metadata of a component, set by its decorator."""

    name: str = ""
    """The name in TOML. Defaults to the name of the function, or the snake-case name of the class."""
    check: Callable[[Any, int], None] | None = None
    """Raises an `OptionError` if options contradict each other or do not fit the number of clients, which is
    the second argument. The first has the options as attributes."""
    replaces: Mapping[str, str] = field(default_factory=dict)
    """Options by the option that replaces them if it is set. Only one of the two may be given."""


@dataclass(frozen=True)
class Plugin:
    """A component from outside rdpfl-sim, and its origin."""

    kind: str
    name: str
    origin: str
    """For example "package drag-attack 0.1" or "module drag"."""
    module: str

    def __str__(self) -> str:
        return f"the {self.kind.replace('_', ' ')} {self.name!r} from the {self.origin}"

    def explain(self, error: BaseException) -> str:
        """Return an error on one line: type, message, and the last line of the plug-in's code that ran."""
        text = " ".join(str(error).split())
        lines = self.lines(error)
        return f"{type(error).__name__}{': ' if text else ''}{text}" + (f" ({lines[-1]})" if lines else "")

    def lines(self, error: BaseException) -> list[str]:
        """Return the lines of the plug-in's code that an error passed through, the innermost last."""
        package, found = self.module.partition(".")[0], []
        for frame, line in walk_tb(error.__traceback__):
            if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
                found.append(f"{Path(frame.f_code.co_filename).name}, line {line}")
        return found


Target: TypeAlias = Callable[..., Any]
"""A function or class that is a component. Its signature depends on its kind."""

P = ParamSpec("P")
F_co = TypeVar("F_co", bound=Facts, covariant=True)
T = TypeVar("T", bound=Target)


@dataclass(frozen=True, eq=False)
class Registered(Generic[F_co]):
    """A component with its facts."""

    target: Target
    facts: F_co
    plugin: Plugin | None
    """None for a built-in component."""

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function or class behind the wrappers of its decorators."""
        function: Callable[..., Any] = inspect.unwrap(self.target)
        return function

    @property
    def origin(self) -> str:
        """The package or module that defines it, as text for messages."""
        return "rdpfl-sim" if self.plugin is None else f"the {self.plugin.origin}"


class Registry(Mapping[str, Target], Generic[P, F_co]):
    """The components of one kind by name. The decorator `register` adds a component."""

    def __init__(self, kind: str, facts: Callable[P, F_co]) -> None:
        self.kind = kind
        self._facts = facts
        self._records: dict[str, Registered[F_co]] = {}

    @overload
    def register(self, target: T, /) -> T: ...

    @overload
    def register(self, *args: P.args, **facts: P.kwargs) -> Callable[[T], T]: ...

    def register(self, *args: Any, **facts: Any) -> Any:
        """Add a function or class; used as `@register`, or with facts as `@register(name="other")`."""
        add = partial(self._add, facts=self._facts(**facts))  # type: ignore[call-arg]
        return add(*args) if args else add

    def _add(self, target: T, facts: F_co) -> T:  # type: ignore[misc]  # safe: only `register` calls it
        name = facts.name or _name_in_toml(target)
        module = str(getattr(target, "__module__", None))
        built_in = module.partition(".")[0] == _BUILT_IN
        plugin = None if built_in else Plugin(self.kind, name, f"module {module}", module)
        new, old = Registered(target, replace(facts, name=name), plugin), self._records.get(name)
        if old is not None and _place(old.target) != _place(target):
            raise name_taken(self.kind, name, [old.origin, new.origin])
        self._records[name] = new
        return target

    def record(self, name: str) -> Registered[F_co]:
        """Return the record of a component: function or class, facts and plug-in."""
        return self._records[name]

    def facts(self, name: str) -> F_co:
        """Return the facts of a component."""
        return self._records[name].facts

    def facts_of(self, target: Target) -> F_co:
        """Return the facts of a function, possibly wrapped or with options bound; defaults if unknown."""
        function = inspect.unwrap(target.func if isinstance(target, partial) else target)
        for record in self._records.values():
            if record.function is function:
                return record.facts
        return self._facts()  # type: ignore[call-arg]

    def assign(self, name: str, plugin: Plugin) -> None:
        """Record the package that a component comes from."""
        self._records[name] = replace(self._records[name], plugin=plugin)

    def remove(self, name: str) -> None:
        """Remove a component, such as one added by a test or a notebook."""
        del self._records[name]

    def __getitem__(self, name: str) -> Target:
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


def _name_in_toml(target: Target) -> str:
    name = target.__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() if inspect.isclass(target) else name


def _place(target: Target) -> tuple[str, str]:
    """Return the module and qualified name. A component with the same ones replaces the old one."""
    return target.__module__, target.__qualname__


@cache
def load_plugins(registry: Registry[..., Facts]) -> Mapping[str, PluginError]:
    """Import the packages with components of a kind; return an error for each name that cannot be used.

    `OneOf` calls this function before each lookup, so that scenarios are validated against all installed
    components. A package that cannot be imported affects only scenarios that use it.
    """
    offered: dict[str, list[EntryPoint]] = {}
    for entry in _installed().select(group=f"rdpfl_sim.{registry.kind}"):
        offered.setdefault(entry.name, []).append(entry)
    unusable: dict[str, PluginError] = {}
    for name, entries in offered.items():
        origins = [registry.record(name).origin] if name in registry else []
        origins += [f"the {_plugin(registry.kind, entry).origin}" for entry in entries]
        if len(origins) > 1:
            unusable[name] = name_taken(registry.kind, name, origins)
        else:
            try:
                _load(registry, entries[0])
            except PluginError as error:
                unusable[name] = error
    return unusable


def forget_plugins() -> None:
    """Clear the cache, so that newly installed packages are found."""
    _installed.cache_clear()
    load_plugins.cache_clear()


@cache
def _installed() -> EntryPoints:
    return cast("EntryPoints", entry_points())  # Python 3.11 returns a different type with the same `select`


def _plugin(kind: str, entry: EntryPoint) -> Plugin:
    package = None if entry.dist is None else f"package {entry.dist.name} {entry.dist.version}"
    return Plugin(kind, entry.name, package or f"module {entry.module}", entry.module)


def _load(registry: Registry[..., Facts], entry: EntryPoint) -> None:
    plugin = _plugin(registry.kind, entry)
    try:
        target = entry.load()
    except (Exception, SystemExit) as error:  # importing a package can raise anything
        raise PluginError(plugin, f"cannot be imported: {plugin.explain(error)}") from error
    if entry.name not in registry or registry[entry.name] is not target:
        raise PluginError(
            plugin, f"is not registered: decorate {entry.value} with @{registry.kind} and give it this name"
        )
    registry.assign(entry.name, plugin)
