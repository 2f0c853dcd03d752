"""Checkpoint files, each written completely or not at all and named after the hash of its content.

A checkpoint is a safetensors file (github.com/huggingface/safetensors, "Format"): a length, a header in JSON,
then raw numbers. The tensor `state` contains JSON text; the others are numbered. Reading a file runs no code.

Two libraries were tested with 6,000 tensors of 1,000 small clients. `torch.load(weights_only=True)` uses an
unpickler that could be exploited to run code before torch 2.6 (CVE-2025-32434) and before 2.10
(CVE-2026-24747). It is also slower: reading takes 361 ms instead of 199 ms. The safetensors package reads
faster (82 ms), but it writes to a path without `O_EXCL` and fsync, needs a second pass for the checksum, and
rejects tensors that share memory.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from rdpfl_sim.records.json_file import JsonObject
from rdpfl_sim.records.state_codec import CodecError, decoding
from rdpfl_sim.system.files import PARTIAL, check_folder, create, make_folder, open_inside, sync_folder
from rdpfl_sim.system.memory import memory_bytes

NUM_KEPT = 2
FILE_NAME = re.compile(r"[0-9]{6,12}-[0-9a-f]{32}\.safetensors")
"""The number of the checkpoint and the hash of its content."""
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
        """Remove all checkpoints of a complete run."""
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


def unpacked(content: bytearray, device: torch.device | str) -> tuple[JsonObject, list[Tensor]]:
    """Return state and tensors from the content of a checkpoint, or raise `CodecError`."""
    with decoding():
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        begin, end = header.pop("state")["data_offsets"]
        state = json.loads(content[start + begin : start + end])
        if not isinstance(state, dict):
            raise CodecError("its state is not a table")
        return state, [_tensor(content, start, header[str(k)]).to(device) for k in range(len(header))]


def _tensor(content: bytearray, start: int, entry: JsonObject) -> Tensor:
    (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], DTYPES[entry["dtype"]]
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != end - begin:
        raise CodecError(f"a tensor of shape {shape} has {end - begin} bytes")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(content, dtype=torch.uint8, count=end - begin, offset=start + begin)
    return raw.clone().view(dtype).reshape(shape)
