"""Derive the table of TOML options from a component's signature."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args, get_origin, get_type_hints

from pydantic import Field, PrivateAttr, create_model
from typing_extensions import Doc

from rdpfl_sim.components.registry import Facts, Plugin, Registered, Target
from rdpfl_sim.components.table import Strict
from rdpfl_sim.errors import PluginError

Wrapper: TypeAlias = Callable[[Target], Target]


class Component(Strict):
    """A named component with its options, as read from TOML."""

    target: ClassVar[Target]
    plugin: ClassVar[Plugin | None] = None
    name: str
    _guard: Wrapper | None = PrivateAttr(None)

    def bind(self) -> Target:
        """Return the component with its options filled in; call it with its positional arguments."""
        options = {key: _bound(getattr(self, key)) for key in type(self).model_fields if key != "name"}
        target = type(self).target if self._guard is None else self._guard(type(self).target)
        return partial(target, **options) if options else target

    def guard_with(self, guard: Wrapper) -> None:
        """Wrap the component's function in `guard` whenever it is bound."""
        self._guard = guard


def _bound(value: Any) -> Any:
    """Return the value of an option; bind the components in it."""
    if isinstance(value, list):
        return [_bound(item) for item in value]
    return value.bind() if isinstance(value, Component) else value


_RESERVED = frozenset(dir(Component)) | {"name"}


@cache
def option_table(record: Registered[Facts]) -> type[Component]:
    """Return the table of a component's options; raise a `PluginError` if TOML cannot represent them."""
    if record.plugin is None:
        return _table(record)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pydantic only warns about a default that JSON cannot represent
            table = _table(record)
            json.dumps(table.model_json_schema())
    except PluginError:
        raise
    except Exception as error:  # annotations of a plug-in can raise anything
        flaw = f"has an option that cannot be used: {record.plugin.explain(error)}"
        raise PluginError(record.plugin, flaw) from error
    return table


def _table(record: Registered[Facts]) -> type[Component]:
    target, name = record.target, record.facts.name
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)
    fields: dict[str, Any] = {"name": (Literal[name], ...)}
    for parameter in inspect.signature(target).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if parameter.name not in hints:
                raise _bad_option(record, parameter.name, "needs a type annotation")
            if parameter.name in _RESERVED:
                raise _bad_option(record, parameter.name, "must have a different name")
            fields[parameter.name] = _field(parameter, hints[parameter.name])
    table = create_model(
        f"{name}_options", __base__=Component, __doc__=summary(target), __module__=target.__module__, **fields
    )
    table.target = target
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
