"""The state of living objects as plain data and tensors, and back.

Two kinds of objects have state. *Parts* are there from the beginning, built from the scenario: a part names
in `STATE` the attributes that change in the course of a run, and in `CALLS` the methods that may be called
later. *Values* come and go, such as messages: a value is rebuilt by calling its class with the parameters of
its constructor, which are attributes of the same names. Objects that were shared are shared again.

Reading data back runs no code but the constructors of the classes that the reader allows.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import MethodType
from typing import Any, TypeAlias

from torch import Tensor

from rdpfl_sim.errors import ScenarioError

Plain: TypeAlias = Any
"""What JSON can hold (with NaN and infinity): scalars as they are, all else as [kind, ...]."""

SCALARS = {type(None), bool, int, float, str}
SEQUENCES: dict[str, type] = {kind.__name__: kind for kind in (list, tuple, deque)}
SETS: dict[str, type] = {kind.__name__: kind for kind in (set, frozenset)}
MAPPINGS: dict[str, type] = {kind.__name__: kind for kind in (dict, Counter)}


class CodecError(ValueError):
    """What cannot be written down, or does not fit the program that reads it."""


@contextmanager
def decoding() -> Iterator[None]:
    """Turn whatever fails on data of the wrong form into a `CodecError`."""
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
    """Writes state down. `values` and `tensors` grow; whatever is encoded refers to their entries."""

    def __init__(self, parts: Mapping[str, Any], classes: Iterable[type]) -> None:
        self.names = {id(part): name for name, part in parts.items()}
        self.fields = {cls: fields_of(cls) for cls in classes}
        self.values: list[Plain] = []
        self.tensors: list[Tensor] = []
        self._references: dict[int, tuple[Any, Plain]] = {}

    def part(self, part: Any) -> dict[str, Plain]:
        """The state of a part, by attribute."""
        return {name: self.encode(getattr(part, name)) for name in part.STATE}

    def encode(self, value: Any) -> Plain:
        """Any value, as plain data."""
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
        if id(value) in self.names:
            return ["part", self.names[id(value)]]
        if kind is MethodType and id(value.__self__) in self.names and value.__name__ in value.__self__.CALLS:
            return ["call", self.names[id(value.__self__)], value.__name__]
        raise CodecError(f"a checkpoint cannot hold {kind.__name__} objects, such as {value!r}")

    def _reference(self, value: Any) -> Plain:
        """The place of a tensor or value in its table, once, however often it occurs."""
        if id(value) not in self._references:
            self._references[id(value)] = value, self._enter(value)  # the value itself: it must stay alive
        return self._references[id(value)][1]

    def _enter(self, value: Any) -> Plain:
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return ["tensor", len(self.tensors) - 1]
        fields = [self.encode(getattr(value, name.rstrip("_"))) for name in self.fields[type(value)]]
        self.values.append([name_of(type(value)), *fields])
        return ["value", len(self.values) - 1]


class Decoder:
    """Reads what an `Encoder` has written, for parts of the same names."""

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
        for name, *fields in values:  # a value comes after those that it refers to
            self.values.append(self._build(name, fields))

    def restore(self, part: Any, state: Mapping[str, Plain]) -> None:
        """Give a part its state back."""
        if state.keys() != set(part.STATE):
            raise CodecError(f"{type(part).__name__} has the state {list(part.STATE)}, not {list(state)}")
        for name, data in state.items():
            setattr(part, name, self.decode(data))

    def decode(self, data: Plain) -> Any:
        """What the data stands for."""
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
        raise CodecError(f"nothing is known of {data!r}")

    def _build(self, name: str, fields: Sequence[Plain]) -> Any:
        if name not in self.classes:
            raise CodecError(f"a checkpoint must not hold {name}")
        cls, names = self.classes[name]
        if len(names) != len(fields):
            raise CodecError(f"{name} has the fields {list(names)}, not {len(fields)}")
        return cls(**dict(zip(names, map(self.decode, fields), strict=True)))


def name_of(cls: type) -> str:
    """How a class is called in a checkpoint."""
    return f"{cls.__module__}.{cls.__qualname__}"


@cache
def fields_of(cls: type) -> tuple[str, ...]:
    """What a value is made of: the parameters of its constructor."""
    return tuple(inspect.signature(cls).parameters)
