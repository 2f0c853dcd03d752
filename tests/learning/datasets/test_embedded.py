from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rdpfl_sim.components.schema import OneOf
from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.datasets import dataset
from rdpfl_sim.learning.datasets.dataset import DATASETS, Shard, _digits, digits, synthetic


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_digits_are_8x8_images_split_by_class() -> None:
    data = digits(generator(), test_fraction=0.25)
    assert data.shape == (1, 8, 8)
    assert data.x_train.dtype == data.x_test.dtype == torch.float32
    assert data.y_train.dtype == data.y_test.dtype == torch.int64
    assert (len(data.y_train), len(data.y_test)) == (1348, 449)
    in_test = torch.bincount(data.y_test, minlength=10)
    in_all = in_test + torch.bincount(data.y_train, minlength=10)
    assert ((in_test - 0.25 * in_all).abs() <= 1).all()


def test_split_of_digits_contains_every_image_once() -> None:
    # Undo the scaling of either split: the multiset of images must not depend on the split.
    def images(seed: int) -> list[list[float]]:
        data = digits(generator(seed))
        x = torch.cat([data.x_train, data.x_test]).flatten(1)
        pixels = ((x - x.min()) / (x.max() - x.min()) * 16).round()
        return sorted(pixels.tolist())

    assert images(1) == images(2)


def test_digits_are_the_test_part_of_the_uci_data_set() -> None:
    images, labels = _digits()
    assert images.shape == (1797, 64)
    assert (images.min(), images.max()) == (0, 16)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert labels[:10].tolist() == [*range(10)]
    assert images[0, 8:16].tolist() == [0, 0, 13, 15, 10, 15, 5, 0]  # the second line of the first zero


def test_digits_come_with_their_citation_and_licence() -> None:
    text = Path(dataset.__file__).with_name("digits.md").read_text()
    assert "Alpaydin and C. Kaynak (1998)" in text
    assert "CC BY 4.0" in text


def test_digits_are_normalised_by_the_training_images() -> None:
    data = digits(generator())
    assert abs(data.x_train.mean().item()) < 1e-5
    assert data.x_train.std().item() == pytest.approx(1, abs=1e-5)
    assert data.x_test.mean().item() != pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("test_fraction", [1.0, 1e-4])
def test_digits_reject_a_split_with_an_empty_side(test_fraction: float) -> None:
    with pytest.raises(OptionError) as error:
        digits(generator(), test_fraction=test_fraction)
    assert error.value.option == "test_fraction"


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_a_seed_determines_a_data_set(name: str) -> None:
    first, again, other = (DATASETS[name](generator(seed)) for seed in (1, 1, 2))
    for field in ("x_train", "y_train", "x_test", "y_test"):
        assert torch.equal(getattr(first, field), getattr(again, field))
        assert not torch.equal(getattr(first, field), getattr(other, field))


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_default_options_are_valid(name: str) -> None:
    OneOf(DATASETS).validate(name)


@pytest.mark.parametrize("shape", [[5], [3, 4, 6]])
def test_synthetic_data_have_the_requested_shape(shape: list[int]) -> None:
    data = synthetic(generator(), shape=shape, num_classes=3, num_train=7, num_test=4)
    assert data.shape == tuple(shape)
    assert data.x_train.shape == (7, *shape)
    assert data.x_test.shape == (4, *shape)
    assert data.x_train.dtype == torch.float32
    assert torch.bincount(data.y_train).tolist() == [3, 2, 2]


def test_synthetic_shape_must_be_an_image_or_a_vector() -> None:
    with pytest.raises(OptionError) as error:
        synthetic(generator(), shape=[8, 8])
    assert error.value.option == "shape"


def test_synthetic_examples_without_noise_are_their_class_prototypes() -> None:
    num_train = 70_000  # more than one chunk
    data = synthetic(generator(), shape=[3], num_classes=2, num_train=num_train, noise=0.0)
    assert torch.unique(data.x_train, dim=0).shape == (2, 3)
    for label in (0, 1):
        train, test = data.x_train[data.y_train == label], data.x_test[data.y_test == label]
        assert (train == train[0]).all()
        assert (test == train[0]).all()


def test_synthetic_noise_is_a_standard_deviation() -> None:
    data = synthetic(generator(), shape=[10], num_classes=2, num_train=4000, noise=3.0)
    for label in (0, 1):
        spread = data.x_train[data.y_train == label].std(dim=0)
        assert ((spread > 2.7) & (spread < 3.3)).all()


@pytest.mark.parametrize("shape", [[64], [3, 16, 16]])
def test_synthetic_prototypes_are_about_five_apart_for_any_shape(shape: list[int]) -> None:
    data = synthetic(generator(), shape=shape, num_classes=10, num_train=10, noise=0.0)
    assert torch.pdist(data.x_train.flatten(1)).mean().item() == pytest.approx(5, rel=0.1)


def test_a_shard_takes_its_own_examples() -> None:
    x, y = torch.arange(10.0).reshape(5, 2), torch.tensor([5, 6, 7, 8, 9])
    shard = Shard(x, y, torch.tensor([1, 4, 2]))
    assert len(shard) == 3
    taken_x, taken_y = shard.take(torch.tensor([2, 0]))
    assert taken_x.tolist() == [[4, 5], [2, 3]]
    assert taken_y.tolist() == [7, 6]
