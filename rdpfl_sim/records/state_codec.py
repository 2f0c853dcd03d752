"""Convert the state of objects to plain data and tensors, and back.

Two kinds of objects have state. *Parts* are built from the scenario and exist throughout a run. A part lists
the attributes that change during a run in `STATE`, and the methods that scheduled events may call in `CALLS`.
*Values*, such as messages, are created during a run. A value is rebuilt by calling its class with the
parameters of its constructor, which must be attributes with the same names. Shared objects stay shared.

Decoding runs no code except constructors of allowed classes.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import MethodType
from typing import Any, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from rdpfl_sim.errors import ScenarioError

Plain: TypeAlias = Any
"""JSON with NaN and infinity: scalars as they are, everything else as [kind, ...]."""

SCALARS = {type(None), bool, int, float, str}
SEQUENCES: dict[str, type] = {kind.__name__: kind for kind in (list, tuple, deque)}
SETS: dict[str, type] = {kind.__name__: kind for kind in (set, frozenset)}
MAPPINGS: dict[str, type] = {kind.__name__: kind for kind in (dict, Counter)}


class CodecError(ValueError):
    """State that cannot be encoded, or data that does not match this version of the program."""


@runtime_checkable
class Pending(Protocol):
    """An object whose computation may be pending. Checkpoints store its results so far."""

    def to_value(self) -> object:
        """Return the results so far."""


@contextmanager
def decoding() -> Iterator[None]:
    """Convert errors caused by malformed data to a `CodecError`."""
    try:
        yield
    except (CodecError, ScenarioError):
        raise
    except (
        *(ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError),
        *(RuntimeError, TypeError, ValueError),
    ) as error:
        raise CodecError(f"it is malformed ({type(error).__name__}: {error})") from error


class Encoder:
    """Encodes state. Encoded data contains indices into the tables `values` and `tensors`."""

    def __init__(self, parts: Mapping[str, Any], classes: Iterable[type]) -> None:
        self.names = {id(part): name for name, part in parts.items()}
        self.fields = {cls: fields_of(cls) for cls in classes}
        self.values: list[Plain] = []
        self.tensors: list[Tensor] = []
        self._references: dict[int, tuple[Any, Plain]] = {}

    def part(self, part: Any) -> dict[str, Plain]:
        """Return the encoded state of a part, by attribute."""
        return {name: self.encode(getattr(part, name)) for name in part.STATE}

    def encode(self, value: Any) -> Plain:
        """Return a value as plain data."""
        kind = type(value)
        if kind in SCALARS:
            return value
        if kind in SEQUENCES.values():
            return [kind.__name__, *map(self.encode, value)]
        if kind in MAPPINGS.values():
            return [kind.__name__, *([self.encode(key), self.encode(item)] for key, item in value.items())]
        if kind in SETS.values():
            return [kind.__name__, *map(self.encode, sorted(value))]
        if kind is bytes:
            return ["bytes", value.hex()]
        if kind in self.fields or isinstance(value, Tensor):
            return self._reference(value)
        if isinstance(value, Pending):
            return self._reference(value.to_value())
        if id(value) in self.names:
            return ["part", self.names[id(value)]]
        if kind is MethodType and id(value.__self__) in self.names and value.__name__ in value.__self__.CALLS:
            return ["call", self.names[id(value.__self__)], value.__name__]
        raise CodecError(f"a checkpoint cannot contain {kind.__name__} objects, such as {value!r}")

    def _reference(self, value: Any) -> Plain:
        """Return the index of a tensor or value in its table; repeated objects share one entry."""
        if id(value) not in self._references:
            self._references[id(value)] = (
                value,
                self._enter(value),
            )  # keeps the value alive, so that its id stays unique
        return self._references[id(value)][1]

    def _enter(self, value: Any) -> Plain:
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return ["tensor", len(self.tensors) - 1]
        fields = [self.encode(getattr(value, name.rstrip("_"))) for name in self.fields[type(value)]]
        self.values.append([name_of(type(value)), *fields])
        return ["value", len(self.values) - 1]


class Decoder:
    """Decodes the data of an `Encoder` for parts with the same names."""

    def __init__(
        self,
        parts: Mapping[str, Any],
        classes: Iterable[type],
        values: Iterable[Plain],
        tensors: Sequence[Tensor],
    ) -> None:
        self.parts = parts
        self.classes = {name_of(cls): (cls, fields_of(cls)) for cls in classes}
        self.tensors = tensors
        self.values: list[Any] = []
        for name, *fields in values:  # a value follows the values that it refers to
            self.values.append(self._build(name, fields))

    def restore(self, part: Any, state: Mapping[str, Plain]) -> None:
        """Set the state of a part."""
        if state.keys() != set(part.STATE):
            raise CodecError(f"{type(part).__name__} has the state {list(part.STATE)}, not {list(state)}")
        for name, data in state.items():
            setattr(part, name, self.decode(data))

    def decode(self, data: Plain) -> Any:
        """Return the value of encoded data."""
        if not isinstance(data, list):
            return sys.intern(data) if isinstance(data, str) else data  # phases are compared by identity
        kind, *items = data
        if kind in SEQUENCES:
            return SEQUENCES[kind](map(self.decode, items))
        if kind in SETS:
            return SETS[kind](map(self.decode, items))
        if kind in MAPPINGS:
            return MAPPINGS[kind]({self.decode(key): self.decode(item) for key, item in items})
        match data:
            case ["bytes", digits]:
                return bytes.fromhex(digits)
            case ["value", place]:
                return self.values[place]
            case ["tensor", place]:
                return self.tensors[place]
            case ["part", name]:
                return self.parts[name]
            case ["call", name, method] if method in self.parts[name].CALLS:
                return getattr(self.parts[name], method)
        raise CodecError(f"unknown data {data!r}")

    def _build(self, name: str, fields: Sequence[Plain]) -> Any:
        if name not in self.classes:
            raise CodecError(f"a checkpoint must not contain {name}")
        cls, names = self.classes[name]
        if len(names) != len(fields):
            raise CodecError(f"{name} has the fields {list(names)}, not {len(fields)}")
        return cls(**dict(zip(names, map(self.decode, fields), strict=True)))


def name_of(cls: type) -> str:
    """Return the name of a class in a checkpoint."""
    return f"{cls.__module__}.{cls.__qualname__}"


@cache
def fields_of(cls: type) -> tuple[str, ...]:
    """Return the parameters of a class's constructor."""
    return tuple(inspect.signature(cls).parameters)
