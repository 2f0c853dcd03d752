"""Checkpoint files, each written completely or not at all and named after the hash of its content.

A checkpoint is a safetensors file. The tensor `state` contains JSON text; the others are numbered. Reading a
file runs no code.

Two libraries were tested with 6,000 tensors of 1,000 small clients. `torch.load(weights_only=True)` uses an
unpickler that could be exploited to run code before torch 2.6 (CVE-2025-32434) and before 2.10
(CVE-2026-24747). It is also slower: reading takes 361 ms instead of 199 ms. The safetensors package reads
faster (82 ms), but it writes to a path without `O_EXCL` and fsync, needs a second pass for the checksum, and
rejects tensors that share memory.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import shutil
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from math import prod
from pathlib import Path
from types import MethodType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.files import (
    PARTIAL,
    JsonObject,
    check_folder,
    create,
    make_folder,
    memory_bytes,
    open_inside,
    sync_folder,
)
from rdpfl_sim.simulation.safetensors import DTYPES, header, numbers

NUM_KEPT = 2
FILE_NAME = re.compile(r"[0-9]{6,12}-[0-9a-f]{32}\.safetensors")
"""The number of the checkpoint and the hash of its content."""

log = logging.getLogger(__name__)


class Checkpoints:
    """The newest checkpoints of one run, in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, state: JsonObject, tensors: Sequence[Tensor]) -> Path:
        """Write a checkpoint that survives a crash of the machine, then remove superseded ones."""
        make_folder(self.folder)
        partial = self.folder / PARTIAL
        partial.unlink(missing_ok=True)  # left by a killed process
        checksum = blake2b(digest_size=16)
        with create(partial) as file:
            for block in packed(state, tensors):
                file.write(block)
                checksum.update(block)
            file.flush()
            os.fsync(file.fileno())
        before = self._paths()
        number = 1 + (_number(before[0]) if before else 0)
        path = partial.replace(self.folder / f"{number:06d}-{checksum.hexdigest()}.safetensors")
        sync_folder(self.folder)
        for superseded in before[NUM_KEPT - 1 :]:
            superseded.unlink()
        return path

    def newest(
        self, can_be_used: Callable[[JsonObject], bool], device: torch.device | str = "cpu"
    ) -> tuple[JsonObject, list[Tensor]] | None:
        """Return state and tensors of the newest usable checkpoint; remove unusable checkpoints."""
        check_folder(self.folder)
        for path in self._paths():
            with open_inside(path) as file:
                if os.fstat(file.fileno()).st_size > memory_bytes():
                    raise CodecError(f"{path} is larger than this machine's memory")
                content = bytearray(file.read())
            if blake2b(content, digest_size=16).hexdigest() in path.name:
                state, tensors = unpacked(content, device)
                if can_be_used(state):
                    return state, tensors
            log.warning(
                "checkpoint %s or a file it depends on is damaged: trying the previous checkpoint", path.name
            )
            path.unlink()
        return None

    def clear(self) -> None:
        """Remove all checkpoints of a complete run, after making sure that its summary is on the disk."""
        sync_folder(self.folder.parent)
        if self.folder.is_symlink():
            self.folder.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _paths(self) -> list[Path]:
        found = [path for path in self.folder.glob("*.safetensors") if FILE_NAME.fullmatch(path.name)]
        return sorted(found, key=_number, reverse=True)


def _number(path: Path) -> int:
    return int(path.name.partition("-")[0])


def packed(state: JsonObject, tensors: Sequence[Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the content of a checkpoint in blocks."""
    text = json.dumps(state, separators=(",", ":")).encode()
    numbered = ((str(number), tensor.dtype, tensor.shape) for number, tensor in enumerate(tensors))
    yield header([("state", torch.uint8, [len(text)]), *numbered])
    yield text
    yield from map(numbers, tensors)


def unpacked(content: bytearray, device: torch.device | str) -> tuple[JsonObject, list[Tensor]]:
    """Return state and tensors from the content of a checkpoint, or raise `CodecError`."""
    with decoding():
        start = 8 + int.from_bytes(content[:8], "little")
        entries = json.loads(content[8:start])
        begin, end = entries.pop("state")["data_offsets"]
        state = json.loads(content[start + begin : start + end])
        if not isinstance(state, dict):
            raise CodecError("its state is not a table")
        return state, [_tensor(content, start, entries[str(k)]).to(device) for k in range(len(entries))]


def _tensor(content: bytearray, start: int, entry: JsonObject) -> Tensor:
    (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], DTYPES[entry["dtype"]]
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != end - begin:
        raise CodecError(f"a tensor of shape {shape} has {end - begin} bytes")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(content, dtype=torch.uint8, count=end - begin, offset=start + begin)
    return raw.clone().view(dtype).reshape(shape)


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
