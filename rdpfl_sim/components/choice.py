"""Annotations for options that name a component.

In TOML a component is either its bare name or a table with `name` and options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, model_serializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from rdpfl_sim.components.option_table import Component, option_table
from rdpfl_sim.components.plugin_loading import load_plugins
from rdpfl_sim.components.registry import Registry
from rdpfl_sim.components.table import suggest
from rdpfl_sim.errors import PluginError


@dataclass(frozen=True)
class OneOf:
    """Annotation: one of the components in `registry`, chosen by name."""

    registry: Registry[..., Any] = field(repr=False)
    default: str | None = None
    required: bool = True
    removed: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The messages for names that an older version had."""

    def __hash__(self) -> int:
        return hash(self.registry)

    @property
    def kind(self) -> str:
        """The kind of component that is chosen."""
        return self.registry.kind

    def names(self) -> list[str]:
        """Return what can be chosen, including the components of installed packages."""
        unusable = load_plugins(self.registry)
        return [*self.registry, *(name for name in unusable if name not in self.registry)]

    def name_of(self, target: Callable[..., Any]) -> str | None:
        """Return the name of a component; None if it is not one of them."""
        return next((name for name, each in self.registry.items() if each is target), None)

    def table(self, name: str) -> type[Component]:
        """Return the option table of one component; raise a `PluginError` if it cannot be used."""
        unusable = load_plugins(self.registry)
        if name in unusable:
            raise unusable[name]
        return option_table(self.registry.record(name))

    def usable_names(self) -> list[str]:
        """Return what can be chosen, without plug-ins that cannot be imported or described."""
        return [name for name in self.names() if self._flaw(name) is None]

    def broken(self) -> list[str]:
        """Return a sentence per plug-in that cannot be used."""
        return [flaw for name in self.names() if (flaw := self._flaw(name)) is not None]

    def _flaw(self, name: str) -> str | None:
        try:
            self.table(name)
        except PluginError as error:
            return str(error)
        return None

    def validate(self, value: Any) -> Component:
        """Return the component that a name, or a table with a name, stands for."""
        if isinstance(value, Component):
            return value
        table = {"name": value} if isinstance(value, str) else value
        if isinstance(table, dict) and "name" not in table and self.default is not None:
            table = {"name": self.default, **table}
        names = self.names()
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            raise _problem(f"must be {self._forms()}; allowed: {', '.join(names)}")
        name = table["name"]
        if name not in names:
            unknown = f"no {self.kind} is called {name!r}{suggest(name, names)}"
            raise _problem(self.removed.get(name, unknown))
        try:
            options = self.table(name)
        except PluginError as error:
            raise _problem(str(error)) from error
        return options.model_validate(table)

    def _forms(self) -> str:
        return "a name or a table with a name"

    def optional(self) -> OneOf:
        """Return the same choice, but it may be left out."""
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


class Steps(Component):
    """Components that are applied one after the other; in TOML a list."""

    steps: tuple[Component, ...]
    combine: Callable[..., Any]

    def bind(self) -> Callable[..., Any]:
        """Return what `combine` makes of the steps before the last, and of the last."""
        *before, last = (step.bind() for step in self.steps)
        return cast("Callable[..., Any]", self.combine(tuple(before), last))

    @model_serializer
    def _as_list(self) -> list[dict[str, Any]]:
        return [step.model_dump(by_alias=True) for step in self.steps]


@dataclass(frozen=True, kw_only=True)
class OneAfterOthers(OneOf):
    """Annotation: one of the components, or a list that ends in one, and before it some of `others`.

    `combine(before, last)` makes one function of those in a list, as `OneOf` would have bound it.
    """

    others: OneOf
    combine: Callable[..., Any] = field(repr=False)
    __hash__ = OneOf.__hash__

    def validate(self, value: Any) -> Component:
        """Return the component that a name, a table with a name, or a list of these stands for."""
        if not isinstance(value, list) or not value:
            return super().validate(value)
        before, last = Annotated[Component, self.others], Annotated[Component, self._alone()]
        hint: Any = tuple[(*[before] * (len(value) - 1), last)]  # type: ignore[misc]
        steps = TypeAdapter(hint).validate_python(value)
        if len(steps) == 1:
            return cast("Component", steps[0])
        return Steps(name=" + ".join(step.name for step in steps), steps=steps, combine=self.combine)

    def _forms(self) -> str:
        return (
            f"{super()._forms()}, or a list that ends in one, after any of {', '.join(self.others.names())}"
        )

    def _alone(self) -> OneOf:
        return OneOf(self.registry, self.default)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        one = self._alone().__get_pydantic_json_schema__(schema, handler)
        other = self.others.__get_pydantic_json_schema__(schema, handler)
        items = {"anyOf": [*other["anyOf"], *one["anyOf"]]}
        return {"anyOf": [*one["anyOf"], {"type": "array", "items": items, "minItems": 1}]}


def _problem(text: str) -> PydanticCustomError:
    return PydanticCustomError("component", "{text}", {"text": text})
