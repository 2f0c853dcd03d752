"""Data sets that need no download."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rdpfl_sim.components.options import Count, Doc, NonNegative, PositiveFraction
from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.datasets.dataset import Dataset, data
from rdpfl_sim.system.memory import check_memory

_CHUNK = 65536


@data
def digits(
    rng: np.random.Generator,
    *,
    test_fraction: Annotated[
        PositiveFraction, Doc("share of the images of every class that is used for testing")
    ] = 0.25,
) -> Dataset:
    """1,797 handwritten digits as 8x8 images, which are part of this package.

    Optical recognition of handwritten digits (Alpaydin and Kaynak, 1998), UCI repository, CC BY 4.0.
    """
    images, labels = _digits()
    by_class = rng.permutation(len(labels))
    by_class = by_class[np.argsort(labels[by_class], kind="stable")]
    # Test images are evenly spaced among the images sorted by class, so class sizes are exact to within 1.
    in_test = np.empty(len(labels), dtype=bool)
    in_test[by_class] = np.diff(np.floor(np.arange(len(labels) + 1) * test_fraction)) > 0
    if not in_test.any() or in_test.all():
        raise OptionError(
            "test_fraction", f"must leave some of the {len(labels)} images for training and for testing"
        )
    test = torch.from_numpy(in_test)
    x = torch.from_numpy(images).reshape(-1, 1, 8, 8)
    y = torch.from_numpy(labels)
    std, mean = torch.std_mean(x[~test])
    x = (x - mean) / std
    return Dataset(x[~test], y[~test], x[test], y[test], num_classes=10)


def _digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the images, one per row, and their labels; digits.md states their origin and licence."""
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as file:
        return file["images"].reshape(-1, 64).astype(np.float32), file["labels"].astype(np.int64)


@data
def synthetic(
    rng: np.random.Generator,
    *,
    shape: Annotated[Sequence[Count], Doc("[channels, height, width], or [features]")] = [1, 8, 8],
    num_classes: Annotated[Count, Doc("number of classes")] = 10,
    num_train: Annotated[Count, Doc("number of training examples")] = 2000,
    num_test: Annotated[Count, Doc("number of test examples")] = 500,
    noise: Annotated[NonNegative, Doc("standard deviation around the prototype; 1: slight overlap")] = 1.0,
) -> Dataset:
    """One Gaussian cloud per class, of any shape and size, with classes of equal size.

    x = mu_y + noise * N(0, I) with prototypes mu_c ~ N(0, s^2 I). The factor s is chosen so that two
    prototypes are about 5 apart. With noise 1, 10 classes and enough features, the best accuracy is about
    0.96.
    """
    if len(shape) not in (1, 3):
        raise OptionError("shape", "must be [channels, height, width] or [features]")
    num_features = prod(shape)
    num_vectors = {"num_classes": num_classes, "num_train": num_train, "num_test": num_test}
    check_memory("shape", 4 * num_features)
    for option, num in num_vectors.items():
        check_memory(option, 4 * num_features * num)
    check_memory("shape", 4 * num_features * sum(num_vectors.values()))
    prototypes = rng.standard_normal((num_classes, num_features), dtype=np.float32)
    prototypes *= np.float32(5 / np.sqrt(2 * num_features))

    def draw(num_samples: int) -> tuple[Tensor, Tensor]:
        y: NDArray[np.int64] = rng.permutation(np.arange(num_samples, dtype=np.int64) % num_classes)
        x = rng.standard_normal((num_samples, num_features), dtype=np.float32)
        x *= np.float32(noise)
        for start in range(0, num_samples, _CHUNK):  # prototypes[y] for the whole set would double memory use
            x[start : start + _CHUNK] += prototypes[y[start : start + _CHUNK]]
        return torch.from_numpy(x).reshape(-1, *shape), torch.from_numpy(y)

    return Dataset(*draw(num_train), *draw(num_test), num_classes)
