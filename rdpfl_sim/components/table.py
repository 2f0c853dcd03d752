"""Strict schemas for TOML tables. Error messages list the allowed values."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

_MESSAGES = {
    "missing": "is required",
    "model_type": "must be a table",
    "is_instance_of": "must be a list",
    "sequence_str": "must be a list",
    "list_type": "must be a list; a list of tables is written with [[double brackets]]",
    "string_pattern_mismatch": "must be letters, digits, '.', '_' and '-', beginning with a letter or digit",
}
"""Messages by pydantic error type, where pydantic's own message does not fit TOML."""


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
            raise ValidationError.from_exception_data(cls.__name__, cls._problems(error)) from None

    @classmethod
    def _problems(cls, error: ValidationError) -> list[InitErrorDetails]:
        """Return one problem per location; merge the problems for the members of a union of plain values."""
        texts: dict[tuple[int | str, ...], list[str]] = {}
        inputs = {}
        for e in error.errors():
            nested = len(e["loc"]) > 1 and e["type"] != "problem" and not isinstance(e["loc"][1], int)
            location = e["loc"][:1] if nested else e["loc"]
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
            return f"unknown key{suggest(error['loc'][0], cls.keys())}"
        if error["type"] in _MESSAGES:
            return _MESSAGES[error["type"]]
        text = error["msg"]
        return text[0].lower() + text[1:]

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that this table may have, spelled as in TOML."""
        return [f.alias or name for name, f in cls.model_fields.items()]


def suggest(given: object, allowed: Iterable[str]) -> str:
    """Return the end of a message: the nearest match to the given value, if any, and all choices."""
    choices = list(allowed)
    near = get_close_matches(str(given), choices, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint}; allowed: {', '.join(choices)}"
