from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rdpfl_sim.learning.datasets.dataset import ARRAYS, Arrays, DataError, read


def test_damage_anywhere_is_an_error_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "small.npz"
    arrays = {key: np.arange(6, dtype=np.uint8).reshape(3, 2) for key in ARRAYS}
    np.savez(path, allow_pickle=False, **arrays)
    content = path.read_bytes()
    num_rejected = 0
    for place in range(0, len(content), 5):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = read(path)
        except DataError:
            num_rejected += 1
        else:  # such as a date in the directory of the archive
            assert all(np.array_equal(found[key], arrays[key]) for key in arrays)
    assert num_rejected > len(content) / 5 / 2


def test_a_file_without_all_arrays_is_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", x_train=np.zeros(1), y_test=np.zeros(1))
    with pytest.raises(DataError, match=r"missing: y_train, x_test$"):
        read(tmp_path / "some.npz")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
            return os.mkdir, (str(tmp_path / "gone off"),)

    bombs: Arrays = {key: np.array([Bomb()], dtype=object) for key in ARRAYS}
    np.savez(tmp_path / "bomb.npz", allow_pickle=True, **bombs)
    with pytest.raises(DataError, match="damaged or unreadable"):
        read(tmp_path / "bomb.npz")
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError, match=r"not an \.npz file"):
        read(tmp_path / "bare.npz")
    assert not (tmp_path / "gone off").exists()
