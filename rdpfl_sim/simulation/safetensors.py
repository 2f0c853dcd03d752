"""Read and write safetensors files: a length, a header in JSON, then raw numbers. Reading runs no code.

The format is described at github.com/huggingface/safetensors, "Format". The package of this name is not used:
it writes to a path without `O_EXCL` and fsync, and rejects tensors that share memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, BinaryIO, NamedTuple

import orjson
import torch
from torch import Tensor

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_HEADER_BYTES = 100_000_000
"""Maximum length of a header, as in the safetensors package."""
MAX_DIMENSIONS = 16
METADATA = "__metadata__"
"""The key of the header with a table of texts."""


class TensorFileError(ValueError):
    """A file that is not a valid safetensors file, or that has other tensors than expected."""


class Entry(NamedTuple):
    """A tensor in a file: its type, its shape, and the positions of its bytes in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def header(
    tensors: Iterable[tuple[str, torch.dtype, Sequence[int]]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return the beginning of a file with these names, types and shapes; the numbers follow in this order."""
    entries: dict[str, Any] = {} if metadata is None else {METADATA: dict(metadata)}
    end = 0
    for name, dtype, shape in tensors:
        begin, end = end, end + prod(shape) * dtype.itemsize
        entries[name] = {"dtype": NAMES[dtype], "shape": [*shape], "data_offsets": [begin, end]}
    text = orjson.dumps(entries)
    text += b" " * (-len(text) % 8)  # aligns the numbers
    return len(text).to_bytes(8, "little") + text


def numbers(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor."""
    flat = tensor.detach().cpu().reshape(-1).contiguous()
    content: memoryview = flat.view(torch.uint8).numpy().data
    return content


class TensorFile:
    """The tensors of an open file, by name. Each is read when it is requested.

    Raises a `TensorFileError` if the header is invalid, or does not describe every byte of the file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        start = 8 + length
        if size < start:
            raise TensorFileError("is not a safetensors file: it is shorter than its header")
        if length > MAX_HEADER_BYTES:
            raise TensorFileError(f"has a header of {length:,} bytes; allowed: {MAX_HEADER_BYTES:,}")
        try:
            table = orjson.loads(file.read(length))
        except orjson.JSONDecodeError as error:
            raise TensorFileError(f"is not a safetensors file: its header is not JSON ({error})") from error
        if not isinstance(table, dict):
            raise TensorFileError("is not a safetensors file: its header is not a table")
        metadata = table.pop(METADATA, {})
        is_text = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
        if not is_text:
            raise TensorFileError("has metadata that is not a table of texts")
        self.metadata: Mapping[str, str] = metadata
        self.entries: Mapping[str, Entry] = {
            name: _entry(name, facts, start) for name, facts in table.items()
        }
        ends = [(start, start), *sorted((entry.begin, entry.end) for entry in self.entries.values())]
        if any(end != begin for (_, end), (begin, _) in pairwise(ends)) or ends[-1][1] != size:
            raise TensorFileError("has numbers that its header does not describe, or describes twice")

    def read(self, name: str) -> Tensor:
        """Return a tensor in torch's own layout."""
        dtype, shape, begin, end = self.entries[name]
        if begin == end:
            return torch.empty(shape, dtype=dtype)
        self.file.seek(begin)
        content = bytearray(self.file.read(end - begin))
        if len(content) < end - begin:
            raise TensorFileError("has become shorter while it was read")
        return torch.frombuffer(content, dtype=torch.uint8).view(dtype).reshape(shape)


def _entry(name: str, facts: Any, start: int) -> Entry:
    """Return the entry of a tensor; `start` is the position of the first number."""
    if not isinstance(facts, dict) or facts.keys() != {"dtype", "shape", "data_offsets"}:
        raise TensorFileError(f"has an invalid entry {name!r} in its header")
    type_, shape, offsets = facts["dtype"], facts["shape"], facts["data_offsets"]
    if not isinstance(type_, str) or type_ not in DTYPES:
        raise TensorFileError(f"has {name!r} of type {type_!r}; allowed: {', '.join(DTYPES)}")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise TensorFileError(f"has an invalid entry {name!r} in its header")
    (begin, end), dtype = offsets, DTYPES[type_]
    if prod(shape) * dtype.itemsize != end - begin:
        raise TensorFileError(f"has {end - begin} bytes for {name!r}, of shape {shape} and type {type_}")
    return Entry(dtype, tuple(shape), start + begin, start + end)


def _are_counts(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= MAX_DIMENSIONS
        and all(type(value) is int and 0 <= value < 2**63 for value in values)
    )
