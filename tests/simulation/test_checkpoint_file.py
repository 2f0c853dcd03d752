import json
from pathlib import Path

import pytest
import torch

from rdpfl_sim.simulation import checkpoint_file as module
from rdpfl_sim.simulation.checkpoint_file import DTYPES, Checkpoints


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def any_state(state: dict) -> bool:
    return True


def newest(checkpoints: Checkpoints) -> int | None:
    found = checkpoints.newest(any_state)
    return None if found is None else found[0]["k"]


def test_state_and_tensors_are_restored_bit_for_bit(checkpoints: Checkpoints) -> None:
    tensors = [
        *(torch.arange(-3, 3).to(dtype) for dtype in DTYPES.values()),
        torch.tensor([1.0, torch.nan, -torch.inf, 1e-45]),
        torch.tensor(2.5),
        torch.empty(0),
        torch.arange(12.0).reshape(3, 4).T,
    ]
    state = {"text": "ü", "numbers": [1, 0.1, float("inf")], "nested": {"a": None}}
    checkpoints.save(state, tensors)
    back, copies = checkpoints.newest(any_state)
    assert back == state
    for tensor, copy in zip(tensors, copies, strict=True):
        assert (copy.dtype, copy.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(copy.nan_to_num(7.0), tensor.nan_to_num(7.0))


def test_tensors_of_a_checkpoint_do_not_share_memory(checkpoints: Checkpoints) -> None:
    whole = torch.arange(1000.0)
    path = checkpoints.save({}, [whole[:10], whole[5:15]])
    assert path.stat().st_size < 1000, "a view is written without what it is a view of"
    one, other = checkpoints.newest(any_state)[1]
    one.zero_()
    assert other.tolist() == list(range(5, 15))


def test_file_is_laid_out_as_safetensors(checkpoints: Checkpoints) -> None:
    content = checkpoints.save({"k": 1}, [torch.zeros(2, 3), torch.ones(1, dtype=torch.bool)]).read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    assert header["0"] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [7, 31]}
    assert header["1"] == {"dtype": "BOOL", "shape": [1], "data_offsets": [31, 32]}
    assert content[8 + size :][:7] == b'{"k":1}'
    assert len(content) == 8 + size + 32, "nothing but what the header tells of"


def test_two_newest_checkpoints_are_kept(checkpoints: Checkpoints) -> None:
    for k in range(12):
        checkpoints.save({"k": k}, [])
    assert sorted(path.name[:6] for path in checkpoints.folder.iterdir()) == ["000011", "000012"]
    assert newest(checkpoints) == 11


def damage_length(content: bytes) -> bytes:
    return content[:-1]


def damage_bit(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def damage_all(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [damage_length, damage_bit, damage_all])
def test_damaged_checkpoint_is_removed_and_the_previous_one_is_used(
    checkpoints: Checkpoints, damage, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints.save({"k": 1}, [torch.ones(5)])
    path = checkpoints.save({"k": 2}, [torch.ones(5)])
    path.write_bytes(damage(path.read_bytes()))
    assert newest(checkpoints) == 1
    assert f"checkpoint {path.name} or a file it depends on is damaged" in caplog.text
    assert not path.exists(), "or it would be kept in place of a good one"


def test_newest_is_none_without_a_valid_checkpoint(checkpoints: Checkpoints) -> None:
    assert newest(checkpoints) is None
    checkpoints.save({"k": 1}, []).write_bytes(b"nonsense")
    assert newest(checkpoints) is None


def test_unusable_checkpoint_is_removed_and_the_previous_one_is_used(checkpoints: Checkpoints) -> None:
    for k in (1, 2):
        checkpoints.save({"k": k}, [])
    found = checkpoints.newest(lambda state: state["k"] == 1)
    assert found is not None
    assert found[0] == {"k": 1}


def test_failed_write_leaves_earlier_checkpoints(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(*content):
        yield b"half"
        raise OSError("no space left on device")

    checkpoints.save({"k": 1}, [])
    monkeypatch.setattr(module, "packed", half)
    with pytest.raises(OSError, match="no space"):
        checkpoints.save({"k": 2}, [])
    assert newest(checkpoints) == 1
    monkeypatch.undo()
    checkpoints.save({"k": 3}, [])
    assert newest(checkpoints) == 3


def test_clearing_removes_everything(checkpoints: Checkpoints) -> None:
    checkpoints.clear()
    checkpoints.save({"k": 1}, [])
    checkpoints.clear()
    assert not checkpoints.folder.exists()
