"""Data sets that are read from files: well-known image data sets and your own .npz files."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from math import prod
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from rdpfl_sim.components.options import Count, Doc
from rdpfl_sim.errors import OptionError
from rdpfl_sim.learning.datasets.dataset import Arrays, DataError, Dataset, data, read, validated
from rdpfl_sim.learning.datasets.download import data_folder, expand_user, fetch, read_torchvision

Folder: TypeAlias = Annotated[
    str | None, Doc("folder for data sets (default: the variable RDPFL_SIM_DATA, or ~/.cache/rdpfl-sim)")
]
Download: TypeAlias = Annotated[bool, Doc("fetch the data set first if it is missing")]
Subset: TypeAlias = Annotated[
    Count | None, Doc("number of training images, spread evenly over the classes (default: all)")
]
SubsetTest: TypeAlias = Annotated[
    Count | None, Doc("number of test images, spread evenly over the classes (default: all)")
]
Augment: TypeAlias = Annotated[
    Literal["none", "crop_flip"],
    Doc("crop_flip: shift training images by up to 4 pixels and mirror half of them"),
]
Layout: TypeAlias = Annotated[
    Literal["auto", "NCHW", "NHWC"], Doc("axis of the channels; auto: the one with 1 to 4 entries")
]

_MARGIN = 4
_CHUNK = 1 << 19  # numbers; small enough for a processor's cache


def _image_set(name: str, description: str) -> Callable[..., Dataset]:
    """Register and return a function that loads a well-known data set."""

    def load(
        rng: np.random.Generator,
        *,
        folder: Folder = None,
        download: Download = False,
        subset: Subset = None,
        subset_test: SubsetTest = None,
        augment: Augment = "none",
    ) -> Dataset:
        return _make_dataset(
            _load_image_set(name, folder, download, subset), rng, subset, subset_test, augment
        )

    load.__name__ = load.__qualname__ = name
    load.__doc__ = description
    return data(load)


cifar10 = _image_set(
    "cifar10",
    """CIFAR-10: 50,000 + 10,000 colour photographs of 32x32 pixels, 10 classes.

    Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """,
)
cifar100 = _image_set(
    "cifar100",
    """CIFAR-100: 50,000 + 10,000 colour photographs of 32x32 pixels, 100 classes.

    Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """,
)
mnist = _image_set(
    "mnist",
    """MNIST: 60,000 + 10,000 handwritten digits of 28x28 pixels.

    LeCun, Bottou, Bengio and Haffner (1998), Gradient-based learning applied to document recognition.
    """,
)
fashion_mnist = _image_set(
    "fashion_mnist",
    """Fashion-MNIST: 60,000 + 10,000 grey images of 28x28 pixels, showing clothes, 10 classes.

    Xiao, Rasul and Vollgraf (2017), Fashion-MNIST: a novel image dataset.
    """,
)


@data
def npz(
    rng: np.random.Generator,
    *,
    path: Annotated[str, Doc("file written by numpy.savez with x_train, y_train, x_test and y_test")],
    layout: Layout = "auto",
    subset: Subset = None,
    subset_test: SubsetTest = None,
    augment: Augment = "none",
) -> Dataset:
    """Your own images or vectors, uint8 or float, with labels 0, 1, ..., in an .npz file."""
    try:
        arrays = validated(_read(expand_user(path), subset), layout)
    except DataError as error:
        raise OptionError("path", str(error)) from error
    return _make_dataset(arrays, rng, subset, subset_test, augment)


def crop_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image of a batch by up to 4 pixels per axis and mirror it with probability 1/2.

    The edges are filled with 0, the mean colour of normalised images.
    """
    num_images, _, height, width = x.shape
    top, left = torch.randint(2 * _MARGIN + 1, (2, num_images), generator=generator).to(x.device)
    mirrored = torch.randint(2, (num_images, 1, 1, 1), generator=generator).bool().to(x.device)
    # A view (N, C, top, left, H, W).
    windows = pad(x, [_MARGIN] * 4).unfold(2, height, 1).unfold(3, width, 1)
    cropped = windows[torch.arange(num_images, device=x.device), :, top, left]
    return torch.where(mirrored, cropped.flip(3), cropped)


def statistics(x: NDArray[np.generic]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and standard deviation of every channel of images, or of every feature of vectors.

    The deviation of a constant channel is set to 1. Sums of uint8 are exact on all machines.
    """
    flat = x.reshape(len(x), x.shape[1], -1)
    total, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for part in _chunks(x, len(x)):
        values = flat[part].astype(np.float64)
        total += values.sum(axis=(0, 2))
        squares += np.einsum("ncp,ncp->c", values, values)
    num_values = flat.shape[0] * flat.shape[2]
    mean = total / num_values
    std = np.sqrt(np.maximum(squares / num_values - mean**2, 0))
    return mean, np.where(std > 1e-6 * np.abs(mean), std, 1.0)


def even_subset(
    option: str, labels: NDArray[np.int64], count: int | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the sorted indices of `count` random examples, or of all; class sizes differ by at most one."""
    if count is None:
        return np.arange(len(labels))
    present, sizes = np.unique(labels, return_counts=True)
    share, rest = divmod(count, len(present))
    quotas = share + (rng.permutation(len(present)) < rest)
    if (quotas > sizes).any():
        raise OptionError(
            option,
            f"must be at most {len(present) * sizes.min()} to take equally many from {len(present)} classes: "
            f"class {present[sizes.argmin()]} has {sizes.min()}; omit it to use all {len(labels)}",
        )
    shuffled = rng.permutation(len(labels))
    by_class = np.split(shuffled[np.argsort(labels[shuffled], kind="stable")], sizes.cumsum()[:-1])
    return np.sort(np.concatenate([c[:quota] for c, quota in zip(by_class, quotas, strict=True)]))


def _load_image_set(name: str, folder: str | None, download: bool, subset: int | None) -> Arrays:
    """Return the arrays of a data set from its .npz file or, if there is none, from torchvision's files."""
    data = data_folder(folder)
    path = data / f"{name}.npz"
    if download:
        try:
            fetch(name, data)
        except DataError as error:
            raise OptionError("download", str(error)) from error
    try:
        if os.path.exists(path):
            return validated(_read(path, subset), "NCHW")
        return validated(read_torchvision(name, data), "NCHW")
    except DataError as error:
        missing = "" if os.path.exists(path) else f"{path} is missing, and "
        command = f"rdpfl-sim data {name}" + (f" --folder {quote(folder)}" if folder else "")
        raise OptionError("folder", f"{missing}{error}; run: {command}") from error


def _read(path: Path, subset: int | None) -> Arrays:
    """Return the arrays in a file. If only a subset is used, they are cached for the next run."""
    if subset is None or not os.path.isfile(path):  # avoid a second copy of the whole data set
        return read(path)
    file = path.stat()
    return _read_once(path, (file.st_ino, file.st_size, file.st_mtime_ns))


@lru_cache(maxsize=1)
def _read_once(path: Path, version: tuple[int, int, int]) -> Arrays:
    return read(path)


def _make_dataset(
    arrays: Arrays, rng: np.random.Generator, subset: int | None, subset_test: int | None, augment: Augment
) -> Dataset:
    """Normalise the data by the mean and deviation of all training examples and select the subsets."""
    x_train, y_train, x_test, y_test = (arrays[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    if augment != "none" and x_train.ndim != 4:
        raise OptionError("augment", f"needs images; the examples are vectors of {x_train.shape[1]} numbers")
    rng_train, rng_test = rng.spawn(2)
    train = even_subset("subset", y_train, subset, rng_train)
    test = even_subset("subset_test", y_test, subset_test, rng_test)
    mean, std = statistics(x_train)
    return Dataset(
        _normalise(x_train, train, mean, std),
        torch.from_numpy(y_train[train]),
        _normalise(x_test, test, mean, std),
        torch.from_numpy(y_test[test]),
        num_classes=int(y_train.max()) + 1,
        augment=crop_flip if augment == "crop_flip" else None,
    )


def _normalise(
    x: NDArray[np.generic], chosen: NDArray[np.int64], mean: NDArray[np.float64], std: NDArray[np.float64]
) -> Tensor:
    """Return (x - mean) / std of the chosen examples in float32."""
    columns = (1, -1, *[1] * (x.ndim - 2))
    centre, scale = (torch.from_numpy(v).float().reshape(columns) for v in (mean, std))
    result = torch.empty(len(chosen), *x.shape[1:])
    for part in _chunks(x, len(chosen)):
        result[part] = (torch.from_numpy(x[chosen[part]]).float() - centre) / scale
    return result


def _chunks(x: NDArray[np.generic], num_examples: int) -> list[slice]:
    """Return slices of examples; intermediate results for the whole set would need too much memory."""
    step = max(1, _CHUNK // prod(x.shape[1:]))
    return [slice(start, start + step) for start in range(0, num_examples, step)]
