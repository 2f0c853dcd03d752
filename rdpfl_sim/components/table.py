"""Strict schemas for TOML tables. Error messages list the allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from rdpfl_sim.components.options import describe_bound
from rdpfl_sim.components.suggestions import suggest, with_known_unit, without_unit

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
