"""Import the components of installed packages.

A package lists its components as entry points: the group `rdpfl_sim.attack` contains attacks. Importing its
modules runs the decorators, as for built-in components.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import cast

from rdpfl_sim.components.registry import Facts, Plugin, Registry, name_taken
from rdpfl_sim.errors import PluginError


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
