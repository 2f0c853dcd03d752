"""Files of tensors: written as the format requires; every malformed file is rejected with one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rdpfl_sim.simulation.safetensors import DTYPES, TensorFile, TensorFileError, header, numbers

W = torch.arange(6.0).reshape(2, 3)


def content(table: object, data: bytes = W.numpy().tobytes()) -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(**changes: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} | changes}


def flaw(path: Path, written: bytes) -> str:
    path.write_bytes(written)
    with path.open("rb") as file, pytest.raises(TensorFileError) as error:
        TensorFile(file)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_tensors_are_read_as_they_were_written(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": W.to(dtype), "b.c": torch.zeros(0, 2, dtype=dtype), "d": torch.tensor(1.0).to(dtype)}
    beginning = header([(name, t.dtype, t.shape) for name, t in tensors.items()], {"made by": "a test"})
    assert len(beginning) % 8 == 0
    path = tmp_path / "tensors"
    path.write_bytes(beginning + b"".join(map(numbers, tensors.values())))
    with path.open("rb") as opened:
        file = TensorFile(opened)
        assert file.metadata == {"made by": "a test"}
        assert [*file.entries] == [*tensors]
        for name, tensor in reversed(tensors.items()):
            found = file.read(name)
            assert found.dtype == dtype
            assert found.shape == tensor.shape
            assert torch.equal(found, tensor)


def test_a_view_is_written_in_row_major_order(tmp_path: Path) -> None:
    assert bytes(numbers(W.T)) == W.T.contiguous().numpy().tobytes() != W.numpy().tobytes()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (b"", "shorter than its header"),
        (b"PK\x03\x04" + bytes(100), "shorter than its header"),
        ((1 << 62).to_bytes(8, "little") + b"{}", "shorter than its header"),
        (content(b"[" * 100_000, b""), "not JSON"),
        (content([1]), "not a table"),
        (content({"__metadata__": {"a": 1}} | entry()), "metadata that is not a table of texts"),
        (content(entry(dtype="F8")), "'w' of type 'F8'; allowed: F64"),
        (content(entry(dtype=["F32"])), "'w' of type ['F32']"),
        (content({"w": {"dtype": "F32"}}), "invalid entry 'w'"),
        (content({"w": 1}), "invalid entry 'w'"),
        (content(entry(shape=[2, -3])), "invalid entry 'w'"),
        (content(entry(shape=[2, 3.0])), "invalid entry 'w'"),
        (content(entry(shape=[True, 3])), "invalid entry 'w'"),
        (content(entry(shape=[1] * 100)), "invalid entry 'w'"),
        (content(entry(data_offsets=[0])), "invalid entry 'w'"),
        (content(entry(shape=[2**62, 2**62])), "24 bytes for 'w'"),
        (content(entry(shape=[2, 2])), "24 bytes for 'w'"),
        (content(entry(), bytes(20)), "does not describe"),
        (content(entry(), bytes(28)), "does not describe"),
        (content(entry(data_offsets=[4, 28]), bytes(28)), "does not describe"),
        (content(entry() | {"v": entry()["w"]}), "describes twice"),
        (content({}), "does not describe"),
    ],
)
def test_malformed_file_is_rejected(tmp_path: Path, written: bytes, words: str) -> None:
    assert words in flaw(tmp_path / "malformed", written)


def test_huge_header_is_rejected_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.write((1 << 30).to_bytes(8, "little"))
        file.truncate(1 << 31)  # a sparse file
    with path.open("rb") as file, pytest.raises(TensorFileError, match="header of 1,073,741,824 bytes"):
        TensorFile(file)
