"""Annotations for options that name a component.

In TOML, a component is written as a name or as a table with `name` and options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from rdpfl_sim.components.option_table import Component, option_table
from rdpfl_sim.components.plugin_loading import load_plugins
from rdpfl_sim.components.registry import Registry
from rdpfl_sim.components.suggestions import suggest
from rdpfl_sim.errors import PluginError


@dataclass(frozen=True)
class OneOf:
    """Annotation: one of the components in `registry`, chosen by name."""

    registry: Registry[..., Any] = field(repr=False)
    default: str | None = None
    required: bool = True
    removed: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Error messages for component names that were removed."""
    if_list: str | None = None
    """Error message for a list, if older versions accepted one here."""

    def __hash__(self) -> int:
        return hash(self.registry)

    @property
    def kind(self) -> str:
        """The kind of component."""
        return self.registry.kind

    def names(self) -> list[str]:
        """Return the names of all components, including those from installed packages."""
        unusable = load_plugins(self.registry)
        return [*self.registry, *(name for name in unusable if name not in self.registry)]

    def name_of(self, target: Callable[..., Any]) -> str | None:
        """Return the name of a component, or None if it is not registered."""
        return next((name for name, each in self.registry.items() if each is target), None)

    def table(self, name: str) -> type[Component]:
        """Return the option table of one component; raise a `PluginError` if it cannot be used."""
        unusable = load_plugins(self.registry)
        if name in unusable:
            raise unusable[name]
        return option_table(self.registry.record(name))

    def usable_names(self) -> list[str]:
        """Return the names of all components, except plug-ins that cannot be used."""
        return [name for name in self.names() if self._flaw(name) is None]

    def broken(self) -> list[str]:
        """Return one error message per unusable plug-in."""
        return [flaw for name in self.names() if (flaw := self._flaw(name)) is not None]

    def _flaw(self, name: str) -> str | None:
        try:
            self.table(name)
        except PluginError as error:
            return str(error)
        return None

    def validate(self, value: Any) -> Component:
        """Return the component for a name, or for a table with a name."""
        if isinstance(value, Component):
            return value
        table = {"name": value} if isinstance(value, str) else value
        if isinstance(table, dict) and table and "name" not in table and self.default is not None:
            table = {"name": self.default, **table}
        names = self.names()
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            forms = f"must be a name or a table with a name; allowed: {', '.join(names)}"
            raise _problem(self.if_list if isinstance(value, list) and self.if_list else forms)
        name = table["name"]
        if name not in names:
            unknown = f"no {self.kind} is called {name!r}{suggest(name, names)}"
            raise _problem(self.removed.get(name, unknown))
        try:
            options = self.table(name)
        except PluginError as error:
            raise _problem(str(error)) from error
        return options.model_validate(table)

    def optional(self) -> OneOf:
        """Return a copy of this annotation for an optional key."""
        return replace(self, required=False)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = core_schema.no_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda component: component.model_dump(by_alias=True)
            ),
        )
        return schema if self.required else core_schema.nullable_schema(schema)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        names = self.usable_names()
        choices: list[CoreSchema | tuple[CoreSchema, str]] = [
            core_schema.literal_schema(names),
            *(self.table(name).__pydantic_core_schema__ for name in names),
        ]
        return handler(core_schema.union_schema(choices))


def _problem(text: str) -> PydanticCustomError:
    return PydanticCustomError("component", "{text}", {"text": text})
