"""Strict schemas for TOML tables. Error messages list the allowed values."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema
from typing_extensions import Doc

from rdpfl_sim.components.options import describe_bound
from rdpfl_sim.components.registry import Facts, Plugin, Registered, Registry, Target, load_plugins
from rdpfl_sim.errors import PluginError

_MESSAGES = {
    "missing": "is required",
    "model_type": "must be a table",
    "string_pattern_mismatch": "must be letters, digits, '.', '_' and '-', beginning with a letter or digit",
}
"""Messages by pydantic error type, where pydantic's own message does not fit TOML."""

_NOT_A_LIST = ("is_instance_of", "sequence_str", "list_type")
_BOUNDS = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}
"""The key of the bound in pydantic's context, and its sign, by pydantic error type."""


class Strict(BaseModel):
    """A table that rejects unknown keys, wrong types, NaN and infinity; messages list the allowed values."""

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
    def _explain(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise ValidationError.from_exception_data(cls.__name__, cls._problems(data, error)) from None

    @classmethod
    def _problems(cls, data: object, error: ValidationError) -> list[InitErrorDetails]:
        """Return one problem per location; merge the problems for the members of a union of plain values."""
        texts: dict[tuple[int | str, ...], list[str]] = {}
        inputs = {}
        for e in error.errors():
            in_union = len(e["loc"]) > 1 and e["type"] != "problem" and not _is_inside(data, e["loc"])
            location = e["loc"][:1] if in_union else e["loc"]
            texts.setdefault(location, []).append(cls._text(e))
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
    def _text(cls, error: ErrorDetails) -> str:
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            key = str(error["loc"][0])
            found = with_known_unit(key, error["input"], cls.keys())
            if found is None or not cls._allows(found[0], float(found[1])):
                return f"unknown key{suggest(key, cls.keys())}"
            return f"unknown key; did you mean {' = '.join(found)}?; allowed: {', '.join(cls.keys())}"
        if error["type"] in _MESSAGES:
            return _MESSAGES[error["type"]]
        if error["type"] == "too_short":
            least = error["ctx"]["min_length"]
            return f"must have at least {least} {'entry' if least == 1 else 'entries'}"
        if error["type"] in _NOT_A_LIST:
            return _list_text(error["input"])
        if error["type"] in _BOUNDS:
            key, sign = _BOUNDS[error["type"]]
            bound = error["ctx"][key]
            is_percentage = bound == 1 and sign in ("<", "<=") and 2 <= error["input"] <= 100
            hint = cls._hint(error, f"{error['input']}%") if is_percentage else ""
            return f"must be {describe_bound(sign, bound)}{hint}"
        if error["type"] == "float_type" and isinstance(error["input"], str):
            hint = cls._hint(error, error["input"])
            if hint:
                return f"must be a number{hint}"
        text = error["msg"].replace("Input should be", "must be")
        return text[0].lower() + text[1:]

    @classmethod
    def _hint(cls, error: ErrorDetails, text: str) -> str:
        """Return a hint with the number to write for a value with a unit, if the option allows it."""
        key = str(error["loc"][0])
        number = without_unit(key, text)
        if number is None or len(error["loc"]) > 1 or not cls._allows(key, float(number)):
            return ""
        return f"; did you mean {number}?"

    @classmethod
    def _allows(cls, key: str, value: object) -> bool:
        try:
            cls.model_validate({key: value})
        except ValidationError as error:
            return all(problem["loc"][:1] != (key,) for problem in error.errors())
        return True

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that this table may have, spelled as in TOML."""
        return [f.alias or name for name, f in cls.model_fields.items()]


def _is_inside(data: object, location: tuple[int | str, ...]) -> bool:
    """Return whether a location inside an option is an index or a key, not the name of a union's member."""
    value = data.get(location[0]) if isinstance(data, Mapping) else None
    return isinstance(location[1], int) or (isinstance(value, Mapping) and location[1] in value)


def _list_text(given: object) -> str:
    if isinstance(given, Mapping):
        return "must be a list; a list of tables is written with [[double brackets]]"
    is_plain = isinstance(given, int | float | str) and not isinstance(given, bool)
    return f"must be a list, such as [{given!r}]" if is_plain else "must be a list"


Wrapper: TypeAlias = Callable[[Target], Target]


class Component(Strict):
    """A named component with its options, as read from TOML."""

    target: ClassVar[Target]
    facts: ClassVar[Facts]
    plugin: ClassVar[Plugin | None] = None
    common: ClassVar[frozenset[str]] = frozenset()
    """The keys of every component of the kind. They are not parameters of the component."""
    name: str
    _guard: Wrapper | None = PrivateAttr(None)

    def bind(self, *, guarded: bool = True) -> Target:
        """Return the component with its options filled in; call it with its positional arguments.

        `guarded` is False for a plug-in whose calls with the same arguments have been tested.
        """
        options = {key: _bound(value) for key, value in self.options.items()}
        guard = self._guard if guarded else None
        target = type(self).target if guard is None else guard(type(self).target)
        return partial(target, **options) if options else target

    @property
    def options(self) -> dict[str, Any]:
        """The options by the names of their parameters."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in type(self).common}

    def guard_with(self, guard: Wrapper) -> None:
        """Wrap the component's function in `guard` whenever it is bound."""
        self._guard = guard


def components_in(
    part: object, location: tuple[int | str, ...] = ()
) -> Iterator[tuple[tuple[int | str, ...], Component]]:
    """Yield the components in a part of a scenario with their locations, nested ones first."""
    if isinstance(part, Strict):
        for name, info in type(part).model_fields.items():
            yield from components_in(getattr(part, name), (*location, info.alias or name))
    elif isinstance(part, list | tuple):
        for place, item in enumerate(part):
            yield from components_in(item, (*location, place))
    if isinstance(part, Component):
        yield location, part


def _bound(value: Any) -> Any:
    """Return the value of an option; bind the components in it."""
    if isinstance(value, list):
        return [_bound(item) for item in value]
    return value.bind() if isinstance(value, Component) else value


@cache
def option_table(record: Registered[Facts], base: type[Component] = Component) -> type[Component]:
    """Return the table of a component's options; raise a `PluginError` if TOML cannot represent them.

    `base` has the keys of every component of the kind.
    """
    if record.plugin is None:
        return _table(record, base)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pydantic only warns about a default that JSON cannot represent
            table = _table(record, base)
            json.dumps(table.model_json_schema())
    except PluginError:
        raise
    except Exception as error:  # annotations of a plug-in can raise anything
        flaw = f"has an option that cannot be used: {record.plugin.explain(error)}"
        raise PluginError(record.plugin, flaw) from error
    return table


def _table(record: Registered[Facts], base: type[Component]) -> type[Component]:
    target, name = record.target, record.facts.name
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)
    fields: dict[str, Any] = {"name": (Literal[name], ...)}
    for parameter in inspect.signature(target).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if parameter.name not in hints:
                raise _bad_option(record, parameter.name, "needs a type annotation")
            if parameter.name in {*dir(base), *base.model_fields}:
                raise _bad_option(record, parameter.name, "must have a different name")
            fields[parameter.name] = _field(parameter, hints[parameter.name])
    table = create_model(
        f"{name}_options", __base__=base, __doc__=summary(target), __module__=target.__module__, **fields
    )
    table.target = target
    table.common = frozenset(base.model_fields)
    table.facts = record.facts
    table.plugin = record.plugin
    return table


def _bad_option(record: Registered[Facts], option: str, problem: str) -> Exception:
    if record.plugin is None:
        return TypeError(f"{record.facts.name!r}: option {option!r} {problem}")
    return PluginError(record.plugin, f"has an option {option!r} that {problem}")


def _field(parameter: inspect.Parameter, hint: object) -> tuple[object, object]:
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    default: object = ... if parameter.default is inspect.Parameter.empty else parameter.default
    if isinstance(default, tuple):
        default = [*default]  # as read from TOML
    if callable(default):
        names = [mark.name_of(default) for mark in metadata if hasattr(mark, "name_of")]
        if names == [None]:
            raise TypeError(f"the default of {parameter.name!r} is not registered")
        default = names[0] if names else default
    doc = next((mark.documentation for mark in metadata if isinstance(mark, Doc)), None)
    alias = parameter.name.removesuffix("_") if parameter.name.endswith("_") else None  # lambda_ is "lambda"
    return hint, Field(default=default, description=doc, alias=alias)


def summary(target: Target) -> str:
    """Return the first line of a component's docstring."""
    return (inspect.getdoc(target) or "").split("\n")[0]


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
    base: type[Component] = Component
    """The table with the keys of every component of this kind."""

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
        return option_table(self.registry.record(name), self.base)

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


def suggest(given: object, allowed: Iterable[str]) -> str:
    """Return the end of a message: the nearest match to the given value, if any, and all choices."""
    choices = list(allowed)
    near = get_close_matches(str(given), choices, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint}; allowed: {', '.join(choices)}"


SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_WITH_UNIT = re.compile(rf"([0-9]*\.?[0-9]+) *({'|'.join(SECONDS)}|%)")
_KEY_WITH_UNIT = re.compile(rf"(?:(.+)_)?({'|'.join(SECONDS)}|percent)")


def without_unit(key: str, text: str) -> str | None:
    """Return the number to write for a value with a unit, or None if the key does not have this unit.

    >>> without_unit("mean_s", "200ms"), without_unit("fraction", "20 %"), without_unit("fraction", "20 s")
    ('0.2', '0.2', None)
    >>> without_unit("every_minutes", "30s")
    '0.5'
    """
    found = _WITH_UNIT.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = float(found[1]), found[2]
    if unit == "%":
        return _number(number / 100)
    if key.endswith("_minutes"):
        return _number(number * SECONDS[unit] / SECONDS["min"])
    is_time = key == "seconds" or (key.endswith("_s") and not key.endswith("_per_s"))
    return _number(number * SECONDS[unit]) if is_time else None


def with_known_unit(key: str, value: object, allowed: Iterable[str]) -> tuple[str, str] | None:
    """Return the allowed key, and the number to write, for a key with another unit, or None.

    >>> with_known_unit("mean_ms", 200, ["name", "mean_s"])
    ('mean_s', '0.2')
    """
    found = _KEY_WITH_UNIT.fullmatch(key)
    if found is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    stem, unit = found.groups()
    unit, names = ("%", (stem,)) if unit == "percent" else (unit, (f"{stem}_s", "seconds"))
    known = next((name for name in names if name in allowed), None)
    number = None if known is None else without_unit(known, f"{value}{unit}")
    return None if known is None or number is None else (known, number)


def _number(value: float) -> str:
    """Return a number as text, without the rounding errors of its conversion."""
    return f"{value:.12g}"
