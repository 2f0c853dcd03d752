"""Checkpoint files: each complete or not there, and named by the hash of what it holds.

A checkpoint is a safetensors file (github.com/huggingface/safetensors, "Format"): a length, a header in JSON,
then raw numbers. The tensor `state` is JSON text; the others are numbered. Reading a file runs no code.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

NUM_KEPT = 2
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

log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run: the newest ones, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, state: dict[str, Any], tensors: Sequence[Tensor]) -> Path:
        """Write a checkpoint that survives a crash of the machine; then forget those that it supersedes."""
        self.folder.mkdir(exist_ok=True)
        partial = self.folder / ".partial"
        checksum = blake2b(digest_size=16)
        with partial.open("wb") as file:
            for block in packed(state, tensors):
                file.write(block)
                checksum.update(block)
            file.flush()
            os.fsync(file.fileno())
        before = self._paths()
        number = 1 + (_number(before[0]) if before else 0)
        path = partial.replace(self.folder / f"{number:06d}-{checksum.hexdigest()}.safetensors")
        _sync_folder(self.folder)
        for superseded in before[NUM_KEPT - 1 :]:
            superseded.unlink()
        return path

    def newest(
        self, can_be_used: Callable[[dict[str, Any]], bool], device: torch.device | str = "cpu"
    ) -> tuple[dict[str, Any], list[Tensor]] | None:
        """State and tensors of the newest checkpoint that can be used; those that cannot are removed."""
        for path in self._paths():
            content = bytearray(path.read_bytes())
            if blake2b(content, digest_size=16).hexdigest() in path.name:
                state, tensors = unpacked(content, device)
                if can_be_used(state):
                    return state, tensors
            log.warning("checkpoint %s, or what it relies on, is damaged: trying the one before", path.name)
            path.unlink()
        return None

    def clear(self) -> None:
        """Remove all: the run is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*-*.safetensors"), key=_number, reverse=True)


def _number(path: Path) -> int:
    return int(path.name.partition("-")[0])


def packed(state: dict[str, Any], tensors: Sequence[Tensor]) -> Iterator[bytes | memoryview]:
    """The content of a checkpoint, piece by piece."""
    text = json.dumps(state, separators=(",", ":")).encode()
    header = {"state": {"dtype": "U8", "shape": [len(text)], "data_offsets": [0, len(text)]}}
    end = len(text)
    for number, tensor in enumerate(tensors):
        begin, end = end, end + tensor.nbytes
        header[str(number)] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    head = json.dumps(header, separators=(",", ":")).encode()
    yield len(head).to_bytes(8, "little")
    yield head
    yield text
    for tensor in tensors:
        flat = tensor.detach().cpu().reshape(-1).contiguous()
        yield flat.view(torch.uint8).numpy().data


def unpacked(content: bytearray, device: torch.device | str) -> tuple[dict[str, Any], list[Tensor]]:
    """State and tensors from the content of a checkpoint."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    begin, end = header.pop("state")["data_offsets"]
    state = json.loads(content[start + begin : start + end])
    return state, [_tensor(content, start, header[str(k)]).to(device) for k in range(len(header))]


def _tensor(content: bytearray, start: int, entry: dict[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    if begin == end:
        return torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
    raw = torch.frombuffer(content, dtype=torch.uint8, count=end - begin, offset=start + begin)
    tensor = raw.clone().view(DTYPES[entry["dtype"]])
    assert tensor.numel() == prod(entry["shape"])
    return tensor.reshape(entry["shape"])


def _sync_folder(folder: Path) -> None:
    """Make a renaming last: it belongs to the folder, not to the file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
