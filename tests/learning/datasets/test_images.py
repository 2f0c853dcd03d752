from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim.components.schema import OneOf
from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.datasets.dataset import DATASETS, Dataset, Shard, read
from rdpfl_sim.learning.datasets.download import DIGESTS, data_folder, digest
from rdpfl_sim.learning.datasets.images import cifar10, crop_flip, even_subset, npz, statistics
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.learning.models import FlatModel, softmax
from rdpfl_sim.learning.training import train

CIFAR10 = data_folder() / "cifar10.npz"


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def arrays(shape: tuple[int, ...] = (3, 8, 8), num_train: int = 12, num_test: int = 6) -> dict[str, Any]:
    """Random bytes, with three classes in turn."""
    rng = generator()
    return {
        "x_train": rng.integers(0, 256, (num_train, *shape), dtype=np.uint8),
        "y_train": np.arange(num_train) % 3,
        "x_test": rng.integers(0, 256, (num_test, *shape), dtype=np.uint8),
        "y_test": np.arange(num_test) % 3,
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.npz"


def loaded(file: Path, content: dict[str, Any], **options: Any) -> Dataset:
    np.savez(file, **content)
    return npz(generator(), path=str(file), **options)


def test_examples_are_normalised_by_the_training_set_channel_by_channel(file: Path) -> None:
    # Channel 0 is 1 and 3 (mean 2, deviation 1), channel 1 is 10 and 30 (mean 20, deviation 10).
    x = np.array([[1, 10], [3, 30]], dtype=np.uint8).reshape(2, 2, 1, 1).repeat(8, 2).repeat(8, 3)
    content = {"x_train": x, "y_train": [0, 1], "x_test": np.full((1, 2, 8, 8), 5, np.uint8), "y_test": [1]}
    data = loaded(file, content)
    assert data.shape == (2, 8, 8)
    assert data.num_classes == 2
    assert data.x_train.dtype == data.x_test.dtype == torch.float32
    assert data.y_train.dtype == data.y_test.dtype == torch.int64
    assert data.x_train[:, :, 3, 5].tolist() == [[-1, -1], [1, 1]]
    assert data.x_test[0, :, 0, 0].tolist() == [3, -1.5]
    assert data.y_train.tolist() == [0, 1]
    assert data.y_test.tolist() == [1]


def test_statistics_are_exact_over_many_chunks() -> None:
    x = generator().integers(0, 256, (3000, 3, 20, 20), dtype=np.uint8)
    mean, std = statistics(x)
    values = x.astype(np.float64).transpose(1, 0, 2, 3).reshape(3, -1)
    np.testing.assert_allclose(mean, values.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(std, values.std(axis=1), rtol=1e-10)


def test_rounding_does_not_make_a_constant_channel_vary() -> None:
    constants = np.linspace(0.1, 9.9, 99, dtype=np.float32)
    x = np.broadcast_to(constants[None, :, None, None], (7, 99, 5, 5))
    assert (statistics(x)[1] == 1).all()


def test_a_constant_channel_becomes_zero(file: Path) -> None:
    content = arrays((2, 8, 8))
    content["x_train"] = content["x_train"].astype(np.float32)
    content["x_test"] = content["x_test"].astype(np.float32)
    content["x_train"][:, 1] = content["x_test"][:, 1] = 0.1
    data = loaded(file, content)
    assert data.x_train[:, 1].abs().max() < 1e-6
    assert data.x_train[:, 0].std() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_the_scale_of_the_numbers_does_not_matter(file: Path, dtype: Any) -> None:
    content = arrays()
    expected = loaded(file, content)
    scaled = {key: (a / 256).astype(dtype) if key[0] == "x" else a for key, a in content.items()}
    torch.testing.assert_close(loaded(file, scaled).x_train, expected.x_train, rtol=1e-4, atol=1e-5)


def test_channels_may_be_last_or_missing(file: Path) -> None:
    content = arrays((3, 8, 8))
    expected = loaded(file, content).x_test
    last = {key: a.transpose(0, 2, 3, 1) if key[0] == "x" else a for key, a in content.items()}
    assert torch.equal(loaded(file, last).x_test, expected)
    assert torch.equal(loaded(file, last, layout="NHWC").x_test, expected)
    assert loaded(file, last, layout="NCHW").shape == (8, 8, 3)
    assert loaded(file, arrays((8, 8))).shape == (1, 8, 8)
    assert loaded(file, arrays((7,))).shape == (7,)


@pytest.mark.parametrize("shape", [(3, 4, 4), (16, 8, 8)])
def test_an_ambiguous_layout_must_be_specified(file: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(OptionError, match="'NCHW' or 'NHWC'") as error:
        loaded(file, arrays(shape))
    assert error.value.option == "layout"
    assert loaded(file, arrays(shape), layout="NCHW").shape == shape


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros((12, 3, 8, 8), np.int32)}, "x_train must be uint8 or float, not int32"),
        ({"x_train": np.zeros(12, np.uint8)}, r"x_train must be images .* not \(12,\)"),
        ({"x_test": np.zeros((0, 3, 8, 8), np.uint8)}, r"x_test must be images .* not \(0, 3, 8, 8\)"),
        ({"x_test": np.zeros((6, 3, 8, 9), np.uint8)}, r"shape \[3, 8, 8\], those of x_test \[3, 8, 9\]"),
        ({"x_test": np.zeros((6, 3, 8, 8), np.float32)}, "both be uint8 or both be float"),
        ({"x_train": np.full((12, 3, 8, 8), np.nan)}, "x_train must be finite"),
        ({"x_train": np.full((12, 3, 8, 8), 1e39)}, "x_train must be finite"),
        ({"y_train": np.zeros(12)}, "y_train must be integers, not float64"),
        ({"y_train": np.arange(12).astype("m8[s]")}, r"y_train must be integers, not timedelta64\[s\]"),
        ({"y_train": np.array(["a"] * 12)}, "y_train must be integers, not <U1"),
        (
            {"y_test": np.zeros(5, int)},
            r"y_test must have one label per example: the shape \(6,\), not \(5,\)",
        ),
        (
            {"y_test": np.zeros((6, 1), int)},
            r"y_test must have one label per example: the shape \(6,\), not \(6, 1\)",
        ),
        (
            {"y_test": np.array([0, 1, 2, 0, 1, -1])},
            "y_test must have no negative labels; the smallest is -1",
        ),
        ({"y_train": np.arange(12) % 3 + 1}, "from 0 to the largest, 3; 0 is missing"),
        ({"y_train": np.array([0, 1, 10**9] * 4)}, "from 0 to the largest, 1000000000; 2 is missing"),
        ({"y_train": np.full(12, 2**64 - 1, np.uint64)}, "y_train must have no negative|to the largest"),
        ({"y_test": np.array([0, 1, 2, 3, 0, 0])}, "y_test has the label 3, which is not in y_train"),
    ],
)
def test_invalid_arrays_are_rejected(file: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        loaded(file, {**arrays(), **changes})
    assert error.value.option == "path"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/no/such/file.npz", "/no/such/file.npz does not exist"),
        ("~nosuchuser/x.npz", "~nosuchuser/x.npz does not exist"),
        ("", "cannot be read: Is a directory"),
        ("a" * 1000, "cannot be read: File name too long"),
        ("\0", "cannot be read: is not a valid path"),
    ],
)
def test_a_missing_file_is_an_error_that_names_it(path: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        npz(generator(), path=path)
    assert error.value.option == "path"


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    wanted=st.integers(1, 200),
    seed=st.integers(0, 9),
)
def test_a_subset_is_balanced_over_classes_or_rejected(sizes: list[int], wanted: int, seed: int) -> None:
    labels = generator(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    if wanted <= len(sizes) * min(sizes):
        chosen = even_subset("subset", labels, wanted, generator(seed))
        counts = np.bincount(labels[chosen], minlength=len(sizes))
        assert counts.sum() == wanted == len(set(chosen.tolist()))
        assert counts.max() - counts.min() <= 1
        assert (np.diff(chosen) > 0).all()
    elif wanted >= len(sizes) * (min(sizes) + 1):
        with pytest.raises(OptionError, match=f"at most {len(sizes) * min(sizes)} "):
            even_subset("subset", labels, wanted, generator(seed))


def test_subsets_are_drawn_at_random_and_independently(file: Path) -> None:
    np.savez(file, **arrays(num_train=60, num_test=60))

    def draw(seed: int, **options: Any) -> Dataset:
        return npz(generator(seed), path=str(file), **options)

    first, again, other = (draw(seed, subset=9, subset_test=6) for seed in (1, 1, 2))
    assert torch.bincount(first.y_train).tolist() == [3, 3, 3]
    assert torch.bincount(first.y_test).tolist() == [2, 2, 2]
    assert torch.equal(first.x_train, again.x_train)
    assert not torch.equal(first.x_train, other.x_train)
    assert not torch.equal(first.x_test, other.x_test)
    assert torch.equal(draw(1, subset_test=6).x_test, first.x_test)


def test_a_subset_is_normalised_like_the_whole_set(file: Path) -> None:
    whole = loaded(file, arrays())
    part = npz(generator(), path=str(file), subset=3)
    rows = {tuple(image.flatten().tolist()) for image in whole.x_train}
    assert all(tuple(image.flatten().tolist()) in rows for image in part.x_train)


def test_a_file_that_has_changed_is_read_again(file: Path) -> None:
    first, second = arrays(), arrays()
    second["x_train"] = second["x_train"][::-1]
    found = []
    for time_s, content in enumerate((first, first, second)):
        np.savez(file, **content)
        os.utime(file, (time_s, time_s))
        found.append(npz(generator(), path=str(file), subset=3).x_train)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])


def test_a_subset_keeps_images_with_their_labels(file: Path) -> None:
    content = arrays((5,), num_train=30)
    content["x_train"][:] = content["y_train"][:, None] * 10
    data = loaded(file, content, subset=7)
    assert np.array_equal(np.unique(data.x_train[:, 0], return_inverse=True)[1], data.y_train)


def naive_crop_flip(x: Tensor, top: list[int], left: list[int], mirrored: list[bool]) -> Tensor:
    """Pixel by pixel."""
    result = torch.zeros_like(x)
    num_images, channels, height, width = x.shape
    for n in range(num_images):
        for c in range(channels):
            for row in range(height):
                for column in range(width):
                    i = row + top[n] - 4
                    j = (width - 1 - column if mirrored[n] else column) + left[n] - 4
                    if 0 <= i < height and 0 <= j < width:
                        result[n, c, row, column] = x[n, c, i, j]
    return result


def test_crop_flip_moves_and_mirrors_each_image_as_drawn() -> None:
    x = torch.arange(1.0, 8 * 2 * 3 * 5 + 1).reshape(8, 2, 3, 5)
    draws = torch.Generator().manual_seed(3)
    top, left = torch.randint(9, (2, 8), generator=draws).tolist()
    mirrored = torch.randint(2, (8, 1, 1, 1), generator=draws).flatten().bool().tolist()
    assert len(set(top)) > 2
    assert set(mirrored) == {True, False}
    expected = naive_crop_flip(x, top, left, mirrored)
    before = x.clone()
    assert torch.equal(crop_flip(x, torch.Generator().manual_seed(3)), expected)
    assert torch.equal(x, before)


def test_crop_flip_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([torch.tensor([[4, 5], [4, 3]]), torch.tensor([1, 0]).reshape(2, 1, 1, 1)])
    monkeypatch.setattr(torch, "randint", lambda *_, **__: next(drawn))
    image = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    mirrored, moved = crop_flip(torch.stack([image, image])[:, None], torch.Generator())
    assert mirrored.tolist() == [[[2, 1], [4, 3]]]
    assert moved.tolist() == [[[0, 3], [0, 0]]]  # up by one, right by one


def test_crop_flip_draws_all_shifts_and_both_sides() -> None:
    x = torch.zeros(4000, 1, 9, 9)
    x[:, 0, 4, 4] = 1
    x[:, 0, 4, 3] = 2  # left of the middle, unless mirrored
    varied = crop_flip(x, torch.Generator().manual_seed(0))[:, 0]
    places = (varied == 1).flatten(1).float().argmax(dim=1)
    assert len(set(places.tolist())) == 81
    right = ((varied == 2).flatten(1).float().argmax(dim=1) > places).float().mean().item()
    assert right == pytest.approx(0.5, abs=0.05)


def test_vectors_cannot_be_cropped(file: Path) -> None:
    with pytest.raises(OptionError, match="vectors of 7 numbers") as error:
        loaded(file, arrays((7,)), augment="crop_flip")
    assert error.value.option == "augment"


def test_training_varies_the_images_repeatably_and_independently_of_earlier_training(file: Path) -> None:
    data = loaded(file, arrays(num_train=30), augment="crop_flip")
    assert data.augment is crop_flip
    assert loaded(file, arrays()).augment is None
    model = FlatModel(lambda: softmax([3, 8, 8], 3))
    w = model.initial(0)
    varied = Shard(data.x_train, data.y_train, torch.arange(20), data.augment)
    other = Shard(data.x_train, data.y_train, torch.arange(20, 30), data.augment)
    plain = Shard(data.x_train, data.y_train, torch.arange(20))

    def weights(shard: Shard, seed: int = 1) -> Tensor:
        return train(model, w, shard, num_steps=4, batch_size=8, learning_rate=0.1, seed=seed)[0]

    first = weights(varied)
    weights(other, seed=2)
    assert torch.equal(weights(varied), first)
    assert not torch.equal(weights(varied, seed=2), first)
    assert not torch.equal(weights(plain), first)
    assert evaluate(model, w, varied) == evaluate(model, w, plain)


def test_training_applies_the_augmentation_to_each_batch() -> None:
    seen = []

    def zero(x: Tensor, generator: torch.Generator) -> Tensor:
        seen.append((len(x), torch.rand(1, generator=generator).item()))
        return torch.zeros_like(x)

    shard = Shard(torch.full((5, 2), torch.nan), torch.zeros(5, dtype=torch.int64), torch.arange(5), zero)
    model = FlatModel(lambda: softmax([2], 2))
    w, _ = train(model, torch.zeros(6), shard, num_steps=3, batch_size=2, learning_rate=0.1, seed=1)
    assert w.isfinite().all()
    assert [size for size, _ in seen] == [2, 2, 1]
    assert len({draw for _, draw in seen}) == 3
    # The stream is not the one that orders the batches.
    assert seen[0][1] != torch.rand(1, generator=torch.Generator().manual_seed(1)).item()


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion_mnist"])
def test_the_error_of_a_missing_set_names_the_command_that_fetches_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "my data"
    with pytest.raises(OptionError) as error:
        DATASETS[name](generator(), folder=str(folder))
    assert error.value.option == "folder"
    assert error.value.message.startswith(f"{folder}/{name}.npz is missing")
    assert error.value.message.endswith(f"; run: rdpfl-sim data {name} --folder '{folder}'")
    assert not folder.exists()


def test_the_default_folder_needs_no_option_in_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDPFL_SIM_DATA", str(tmp_path))
    with pytest.raises(OptionError) as error:
        cifar10(generator())
    assert error.value.message.endswith("; run: rdpfl-sim data cifar10")


def test_the_error_of_a_damaged_set_names_the_command_that_fetches_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "cifar10.npz", **arrays())
    content = (tmp_path / "cifar10.npz").read_bytes()
    (tmp_path / "cifar10.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(
        OptionError, match=r"cifar10\.npz is not an \.npz file, or is truncated; run: rdpfl-sim"
    ):
        cifar10(generator(), folder=str(tmp_path))


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion_mnist"])
def test_a_set_is_read_from_its_file(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / f"{name}.npz", **arrays())
    table = {"name": name, "folder": str(tmp_path), "subset": 6, "subset_test": 3, "augment": "crop_flip"}
    data = OneOf(DATASETS).validate(table).bind()(generator())
    assert (len(data.y_train), len(data.y_test)) == (6, 3)
    assert data.augment is crop_flip


def test_download_fetches_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(name: str, folder: Path) -> None:
        np.savez(folder / f"{name}.npz", **arrays())

    monkeypatch.setattr("rdpfl_sim.learning.datasets.images.fetch", fake)
    assert cifar10(generator(), folder=str(tmp_path), download=True).num_classes == 3


@pytest.mark.skipif(not CIFAR10.exists(), reason="CIFAR-10 has not been fetched")
def test_cifar10_is_the_original_with_its_well_known_statistics() -> None:
    original = read(CIFAR10)
    assert DIGESTS["cifar10"] == tuple(
        digest(original[f"x_{p}"], original[f"y_{p}"]) for p in ("train", "test")
    )
    mean, std = statistics(original["x_train"])
    np.testing.assert_allclose(mean / 255, [0.4914, 0.4822, 0.4465], atol=5e-5)
    np.testing.assert_allclose(std / 255, [0.2470, 0.2435, 0.2616], atol=5e-5)
    assert np.bincount(original["y_train"]).tolist() == [5000] * 10
    assert np.bincount(original["y_test"]).tolist() == [1000] * 10
