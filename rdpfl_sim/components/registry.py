"""From a component's signature to its TOML options.

A component is a function or class; its keyword-only parameters are its options. A literal dictionary
at the foot of its module names it. `OneOf(kind, registry)` in an annotation says "one of these, by
name": in TOML either the bare name or a table with `name` and options.

A plug-in is a component that does not come with rdpfl-sim: an installed package names it in an entry point,
or a script puts it into the dictionary. A broken one is rejected where it is used, and affects nothing else.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from traceback import walk_tb
from types import FunctionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema
from typing_extensions import Doc

from rdpfl_sim.errors import PluginError

Guard: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_WORDS = {
    "missing": "is required",
    "model_type": "must be a table",
    "is_instance_of": "must be a list",
    "list_type": "must be a list; a list of tables is written with [[double brackets]]",
    "string_pattern_mismatch": "must be letters, digits, '.', '_' and '-', beginning with a letter or digit",
}


class Strict(BaseModel):
    """A table that refuses unknown keys, wrong types, nan and inf, and says what would be right."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        validate_by_alias=True,
        validate_by_name=False,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise ValidationError.from_exception_data(cls.__name__, cls._problems(error)) from None

    @classmethod
    def _problems(cls, error: ValidationError) -> list[InitErrorDetails]:
        """The errors in words; the branches of a union of plain values become one."""
        texts: dict[tuple[int | str, ...], list[str]] = {}
        inputs = {}
        for e in error.errors():
            nested = len(e["loc"]) > 1 and e["type"] != "problem" and not isinstance(e["loc"][1], int)
            location = e["loc"][:1] if nested else e["loc"]
            texts.setdefault(location, []).append(cls._text(dict(e)))
            inputs[location] = e["input"]
        return [
            InitErrorDetails(
                type=PydanticCustomError("problem", "{text}", {"text": " or ".join(text)}),
                loc=location,
                input=inputs[location],
            )
            for location, text in texts.items()
        ]

    @classmethod
    def _text(cls, error: dict[str, Any]) -> str:
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            return f"unknown key{suggest(error['loc'][0], cls.keys())}"
        if error["type"] in _WORDS:
            return _WORDS[error["type"]]
        text: str = error["msg"]
        return text[0].lower() + text[1:]

    @classmethod
    def keys(cls) -> list[str]:
        """The keys this table may have, as TOML spells them."""
        return [f.alias or name for name, f in cls.model_fields.items()]


@dataclass(frozen=True)
class Plugin:
    """A component that does not come with rdpfl-sim, and where it comes from."""

    kind: str
    name: str
    origin: str
    """Such as "package drag-attack 0.1", or "module drag"."""
    module: str

    def __str__(self) -> str:
        return f"the {self.kind.replace('_', ' ')} {self.name!r} of the {self.origin}"

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


class Component(Strict):
    """A named component with its options, as read from TOML."""

    target: ClassVar[Callable[..., Any]]
    plugin: ClassVar[Plugin | None] = None
    name: str
    _guard: Guard | None = PrivateAttr(None)

    def bind(self) -> Callable[..., Any]:
        """The component with its options filled in; call it with its positional arguments."""
        values = {key: getattr(self, key) for key in type(self).model_fields if key != "name"}
        options = {k: v.bind() if isinstance(v, Component) else v for k, v in values.items()}
        target = type(self).target if self._guard is None else self._guard(type(self).target)
        return partial(target, **options) if options else target

    def guard_with(self, guard: Guard) -> None:
        """Let `guard` wrap the component's function whenever it is bound."""
        self._guard = guard


class Steps(Component):
    """Components that work one after the other, in TOML a list."""

    steps: tuple[Component, ...]
    combine: Callable[..., Any]

    def bind(self) -> Callable[..., Any]:
        """What `combine` makes of the steps before the last, and of the last."""
        *before, last = (step.bind() for step in self.steps)
        return cast("Callable[..., Any]", self.combine(tuple(before), last))

    @model_serializer
    def _as_list(self) -> list[dict[str, Any]]:
        return [step.model_dump(by_alias=True) for step in self.steps]


def specialised(function: Callable[..., Any]) -> Callable[..., Any]:
    """A bound component as a function whose defaults are its options: quicker to call, by positions only."""
    if not isinstance(function, partial) or not isinstance(function.func, FunctionType):
        return function
    original = function.func
    copy = FunctionType(
        original.__code__, original.__globals__, original.__name__, closure=original.__closure__
    )
    copy.__kwdefaults__ = {**(original.__kwdefaults__ or {}), **function.keywords}
    return copy


@dataclass(frozen=True)
class OneOf:
    """Annotation: one of the components in `registry`, chosen by name."""

    kind: str
    registry: Mapping[str, Callable[..., Any]] = field(repr=False)
    default: str | None = None
    required: bool = True
    removed: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The messages for names that an older version had."""

    def __hash__(self) -> int:
        return hash(self.kind)

    def names(self) -> list[str]:
        """What can be chosen, the components of installed packages included.

        A package adds, say, an attack through the entry point group `rdpfl_sim.attack`.
        """
        return [*self.registry, *(entry.name for entry in self._entries() if entry.name not in self.registry)]

    def table(self, name: str) -> type[Component]:
        """The option table of one component; a `PluginError` if it is a plug-in that cannot be used."""
        if name in self.registry:
            target = self.registry[name]
            module = str(getattr(target, "__module__", None))
            if module.partition(".")[0] == __name__.partition(".")[0]:
                return _option_table(name, target)
            return _plugin_table(Plugin(self.kind, name, f"module {module}", module), target)
        plugins = [(_plugin(self.kind, entry), entry) for entry in self._entries() if entry.name == name]
        plugin, entry = plugins[0]
        if len(plugins) > 1:
            others = " and ".join(other.origin for other, _ in plugins[1:])
            raise PluginError(plugin, f"is also offered by {others}: uninstall all but one")
        return _plugin_table(plugin, _imported(plugin, entry))

    def usable_names(self) -> list[str]:
        """What can be chosen, without plug-ins that cannot be imported or described."""
        return [name for name in self.names() if self._flaw(name) is None]

    def broken(self) -> list[str]:
        """A sentence about every plug-in that cannot be used."""
        flaws = [flaw for name in self.names() if (flaw := self._flaw(name)) is not None]
        shadowed = [_plugin(self.kind, entry) for entry in self._entries() if entry.name in self.registry]
        return [*flaws, *(f"{plugin} is ignored: a built-in one has the same name" for plugin in shadowed)]

    def _flaw(self, name: str) -> str | None:
        try:
            self.table(name)
        except PluginError as error:
            return str(error)
        return None

    def _entries(self) -> Iterable[EntryPoint]:
        return _installed().select(group=f"rdpfl_sim.{self.kind}")

    def validate(self, value: Any) -> Component:
        """The component that `value` (a name, or a table with a name) stands for."""
        if isinstance(value, Component):
            return value
        table = {"name": value} if isinstance(value, str) else value
        if isinstance(table, dict) and "name" not in table and self.default is not None:
            table = {"name": self.default, **table}
        names = self.names()
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            text = f"must be {self._forms()}; allowed: {', '.join(names)}"
            raise PydanticCustomError("component", "{text}", {"text": text})
        if table["name"] not in names:
            text = f"no {self.kind} is called {table['name']!r}{suggest(table['name'], names)}"
            text = self.removed.get(table["name"], text)
            raise PydanticCustomError("component", "{text}", {"text": text})
        try:
            options = self.table(table["name"])
        except PluginError as error:
            raise PydanticCustomError("component", "{text}", {"text": str(error)}) from error
        return options.model_validate(table)

    def _forms(self) -> str:
        return "a name or a table with a name"

    def optional(self) -> OneOf:
        """The same choice, but it may be left out."""
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


@dataclass(frozen=True, kw_only=True)
class OneAfterOthers(OneOf):
    """Annotation: one of the components, or a list that ends in one, and before it some of `others`.

    `combine(before, last)` makes one function of those in a list, as `OneOf` would have bound it.
    """

    others: OneOf
    combine: Callable[..., Any] = field(repr=False)
    __hash__ = OneOf.__hash__

    def validate(self, value: Any) -> Component:
        """The component that a name, a table with a name, or a list of these stands for."""
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
        return OneOf(self.kind, self.registry, self.default)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        one = self._alone().__get_pydantic_json_schema__(schema, handler)
        other = self.others.__get_pydantic_json_schema__(schema, handler)
        items = {"anyOf": [*other["anyOf"], *one["anyOf"]]}
        return {"anyOf": [*one["anyOf"], {"type": "array", "items": items, "minItems": 1}]}


@cache
def _installed() -> EntryPoints:
    """The entry points of all groups; they are looked for once, as that takes a while."""
    return cast("EntryPoints", entry_points())  # Python 3.11 has another type, with the same `select`


def _plugin(kind: str, entry: EntryPoint) -> Plugin:
    package = None if entry.dist is None else f"package {entry.dist.name} {entry.dist.version}"
    return Plugin(kind, entry.name, package or f"module {entry.module}", entry.module)


def _imported(plugin: Plugin, entry: EntryPoint) -> Callable[..., Any]:
    try:
        target = entry.load()
    except (Exception, SystemExit) as error:  # a package may do anything when it is imported
        raise PluginError(plugin, f"cannot be imported: {plugin.explain(error)}") from error
    if not callable(target):
        raise PluginError(plugin, f"must be a function or a class; {entry.value} is {type(target).__name__}")
    return cast("Callable[..., Any]", target)


def _plugin_table(plugin: Plugin, target: Callable[..., Any]) -> type[Component]:
    """The option table of a plug-in, if TOML can hold all of its options."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pydantic only warns of a default that JSON cannot hold
            table = _option_table(plugin.name, target, plugin)
            json.dumps(table.model_json_schema())
    except PluginError:
        raise
    except Exception as error:  # whatever its annotations mean to Python and pydantic
        raise PluginError(plugin, f"has an option that cannot be used: {plugin.explain(error)}") from error
    return table


@cache
def _option_table(name: str, target: Callable[..., Any], plugin: Plugin | None = None) -> type[Component]:
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)
    fields: dict[str, Any] = {"name": (Literal[name], ...)}
    for parameter in inspect.signature(target).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if parameter.name not in hints:
                raise _bad_option(name, plugin, parameter.name, "needs a type annotation")
            if parameter.name in _RESERVED:
                raise _bad_option(name, plugin, parameter.name, "must have another name")
            fields[parameter.name] = _option_field(parameter, hints[parameter.name])
    table = create_model(
        f"{name}_options", __base__=Component, __doc__=summary(target), __module__=target.__module__, **fields
    )
    table.target = target
    table.plugin = plugin
    return table


_RESERVED = frozenset(dir(Component)) | {"name"}


def _bad_option(name: str, plugin: Plugin | None, option: str, problem: str) -> Exception:
    if plugin is None:
        return TypeError(f"{name!r}: option {option!r} {problem}")
    return PluginError(plugin, f"has an option {option!r} that {problem}")


def _option_field(parameter: inspect.Parameter, hint: Any) -> tuple[Any, Any]:
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    default: Any = ... if parameter.default is inspect.Parameter.empty else parameter.default
    for mark in metadata:
        if isinstance(mark, OneOf) and callable(default):
            names = [name for name, target in mark.registry.items() if target is default]
            if not names:
                raise TypeError(f"the default of {parameter.name!r} is not in the registry of its kind")
            (default,) = names
    doc = next((mark.documentation for mark in metadata if isinstance(mark, Doc)), None)
    alias = parameter.name.removesuffix("_") if parameter.name.endswith("_") else None  # lambda_ is "lambda"
    return hint, Field(default=default, description=doc, alias=alias)


def suggest(given: object, allowed: Mapping[str, Any] | list[str]) -> str:
    """A hint that lists what is allowed, led by the nearest match to what was given."""
    near = get_close_matches(str(given), list(allowed), n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint}; allowed: {', '.join(allowed)}"


def summary(target: Callable[..., Any]) -> str:
    """The first line of a component's docstring."""
    return (inspect.getdoc(target) or "").split("\n")[0]
