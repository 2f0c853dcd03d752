"""Data sets that are read from files: well-known images, and anyone's own."""

from __future__ import annotations

import os
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
from rdpfl_sim.learning.datasets.dataset import Augmentation, Dataset
from rdpfl_sim.learning.datasets.download import (
    Arrays,
    DataError,
    data_folder,
    expanded,
    fetch,
    read,
    read_torchvision,
)

Folder: TypeAlias = Annotated[
    str | None, Doc("where data sets are kept; else the variable RDPFL_SIM_DATA, else ~/.cache/rdpfl-sim")
]
Download: TypeAlias = Annotated[bool, Doc("fetch it first if it is not there")]
Subset: TypeAlias = Annotated[
    Count | None, Doc("so many training images, evenly over the classes; all if left out")
]
SubsetTest: TypeAlias = Annotated[Count | None, Doc("so many test images, likewise")]
Augment: TypeAlias = Annotated[
    Literal["none", "crop_flip"], Doc("training images are shifted by up to 4 pixels, and half are mirrored")
]
Layout: TypeAlias = Annotated[
    Literal["auto", "NCHW", "NHWC"], Doc("which axis is the channels; auto: the one with 1 to 4 entries")
]

_MARGIN = 4
_CHUNK = 1 << 19  # numbers; small enough for a processor's cache


def cifar10(
    rng: np.random.Generator,
    *,
    folder: Folder = None,
    download: Download = False,
    subset: Subset = None,
    subset_test: SubsetTest = None,
    augment: Augment = "none",
) -> Dataset:
    """CIFAR-10: 50,000 + 10,000 colour photographs of 32x32 pixels, 10 classes.

    Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    return _prepared(_well_known("cifar10", folder, download, subset), rng, subset, subset_test, augment)


def cifar100(
    rng: np.random.Generator,
    *,
    folder: Folder = None,
    download: Download = False,
    subset: Subset = None,
    subset_test: SubsetTest = None,
    augment: Augment = "none",
) -> Dataset:
    """CIFAR-100: 50,000 + 10,000 colour photographs of 32x32 pixels, 100 classes.

    Krizhevsky (2009), Learning multiple layers of features from tiny images.
    """
    return _prepared(_well_known("cifar100", folder, download, subset), rng, subset, subset_test, augment)


def mnist(
    rng: np.random.Generator,
    *,
    folder: Folder = None,
    download: Download = False,
    subset: Subset = None,
    subset_test: SubsetTest = None,
    augment: Augment = "none",
) -> Dataset:
    """MNIST: 60,000 + 10,000 handwritten digits of 28x28 pixels.

    LeCun, Bottou, Bengio and Haffner (1998), Gradient-based learning applied to document recognition.
    """
    return _prepared(_well_known("mnist", folder, download, subset), rng, subset, subset_test, augment)


def fashion_mnist(
    rng: np.random.Generator,
    *,
    folder: Folder = None,
    download: Download = False,
    subset: Subset = None,
    subset_test: SubsetTest = None,
    augment: Augment = "none",
) -> Dataset:
    """Fashion-MNIST: 60,000 + 10,000 grey pictures of clothes of 28x28 pixels, 10 classes.

    Xiao, Rasul and Vollgraf (2017), Fashion-MNIST: a novel image dataset.
    """
    return _prepared(
        _well_known("fashion_mnist", folder, download, subset), rng, subset, subset_test, augment
    )


def npz(
    rng: np.random.Generator,
    *,
    path: Annotated[str, Doc("a file of numpy.savez with x_train, y_train, x_test and y_test")],
    layout: Layout = "auto",
    subset: Subset = None,
    subset_test: SubsetTest = None,
    augment: Augment = "none",
) -> Dataset:
    """Your own images or vectors, uint8 or float, with labels 0, 1, ..., in an .npz file."""
    try:
        arrays = _checked(_read(expanded(path), subset), layout)
    except DataError as error:
        raise OptionError("path", str(error)) from error
    return _prepared(arrays, rng, subset, subset_test, augment)


def crop_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """The images of a batch, each moved by up to 4 pixels either way, and mirrored with probability 1/2.

    What comes in at the edges is 0, the mean colour of normalised images.
    """
    num_images, _, height, width = x.shape
    top, left = torch.randint(2 * _MARGIN + 1, (2, num_images), generator=generator).to(x.device)
    mirrored = torch.randint(2, (num_images, 1, 1, 1), generator=generator).bool().to(x.device)
    windows = (
        pad(x, [_MARGIN] * 4).unfold(2, height, 1).unfold(3, width, 1)
    )  # (N, C, top, left, H, W), a view
    cropped = windows[torch.arange(num_images, device=x.device), :, top, left]
    return torch.where(mirrored, cropped.flip(3), cropped)


def statistics(x: NDArray[np.generic]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every channel of images, or of every feature of vectors.

    A constant channel is said to have the deviation 1. Sums of uint8 are exact, so that every machine agrees.
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
    """The sorted indices of `count` random examples, from each class as many, give or take one; or of all."""
    if count is None:
        return np.arange(len(labels))
    present, sizes = np.unique(labels, return_counts=True)
    share, rest = divmod(count, len(present))
    quotas = share + (rng.permutation(len(present)) < rest)
    if (quotas > sizes).any():
        raise OptionError(
            option,
            f"at most {len(present) * sizes.min()} come evenly from {len(present)} classes, because class "
            f"{present[sizes.argmin()]} has {sizes.min()}; leave it out to take all {len(labels)}",
        )
    shuffled = rng.permutation(len(labels))
    by_class = np.split(shuffled[np.argsort(labels[shuffled], kind="stable")], sizes.cumsum()[:-1])
    return np.sort(np.concatenate([c[:quota] for c, quota in zip(by_class, quotas, strict=True)]))


def _well_known(name: str, folder: str | None, download: bool, subset: int | None) -> Arrays:
    """The arrays of a data set from its file, or else from torchvision's files."""
    where = data_folder(folder)
    path = where / f"{name}.npz"
    if download:
        try:
            fetch(name, where)
        except DataError as error:
            raise OptionError("download", str(error)) from error
    try:
        if os.path.exists(path):
            return _checked(_read(path, subset), "NCHW")
        return _checked(read_torchvision(name, where), "NCHW")
    except DataError as error:
        missing = "" if os.path.exists(path) else f"{path} is missing, and "
        command = f"rdpfl-sim data {name}" + (f" --folder {quote(folder)}" if folder else "")
        raise OptionError("folder", f"{missing}{error}; run: {command}") from error


def _read(path: Path, subset: int | None) -> Arrays:
    """The arrays of a file; one of which a run takes only a part is kept for the next run in this process."""
    if subset is None or not os.path.isfile(path):  # a whole data set is not held in memory twice
        return read(path)
    file = path.stat()
    return _read_once(path, (file.st_ino, file.st_size, file.st_mtime_ns))


@lru_cache(maxsize=1)
def _read_once(path: Path, version: tuple[int, int, int]) -> Arrays:
    return read(path)


def _prepared(
    arrays: Arrays, rng: np.random.Generator, subset: int | None, subset_test: int | None, augment: Augment
) -> Dataset:
    """The data set, normalised by the mean and deviation of all its training examples."""
    x_train, y_train, x_test, y_test = (arrays[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    if augment != "none" and x_train.ndim != 4:
        raise OptionError("augment", f"needs images; these are vectors of {x_train.shape[1]} numbers")
    rng_train, rng_test = rng.spawn(2)
    train = even_subset("subset", y_train, subset, rng_train)
    test = even_subset("subset_test", y_test, subset_test, rng_test)
    mean, std = statistics(x_train)
    return Dataset(
        _normalised(x_train, train, mean, std),
        torch.from_numpy(y_train[train]),
        _normalised(x_test, test, mean, std),
        torch.from_numpy(y_test[test]),
        num_classes=int(y_train.max()) + 1,
        augment=_AUGMENTATIONS[augment],
    )


def _normalised(
    x: NDArray[np.generic], chosen: NDArray[np.int64], mean: NDArray[np.float64], std: NDArray[np.float64]
) -> Tensor:
    """(x - mean) / std of the chosen examples, in float32."""
    columns = (1, -1, *[1] * (x.ndim - 2))
    centre, scale = (torch.from_numpy(v).float().reshape(columns) for v in (mean, std))
    result = torch.empty(len(chosen), *x.shape[1:])
    for part in _chunks(x, len(chosen)):
        result[part] = (torch.from_numpy(x[chosen[part]]).float() - centre) / scale
    return result


def _chunks(x: NDArray[np.generic], num_examples: int) -> list[slice]:
    """Slices of examples that are quick to work on; whole-set intermediates would take much memory."""
    step = max(1, _CHUNK // prod(x.shape[1:]))
    return [slice(start, start + step) for start in range(0, num_examples, step)]


def _checked(arrays: Arrays, layout: str) -> Arrays:
    """The arrays as (N, C, H, W) or (N, F), with int64 labels, or an error that tells what is wrong."""
    result: Arrays = {}
    for part in ("train", "test"):
        x, y = f"x_{part}", f"y_{part}"
        result[x] = _checked_examples(x, arrays[x], layout)
        result[y] = _checked_labels(y, arrays[y], len(arrays[x]))
    shapes = [list(result[key].shape[1:]) for key in ("x_train", "x_test")]
    if shapes[0] != shapes[1]:
        raise DataError(f"x_train has examples of shape {shapes[0]}, but x_test of shape {shapes[1]}")
    if result["x_train"].dtype != result["x_test"].dtype:
        raise DataError("x_train and x_test must both be uint8 or both be float, on the same scale")
    classes = np.unique(result["y_train"])
    if not np.array_equal(classes, np.arange(len(classes))):
        absent = next(label for label, found in enumerate([*classes, -1]) if label != found)
        raise DataError(
            f"y_train must have all labels from 0 to the largest, {classes[-1]}; {absent} is absent"
        )
    if result["y_test"].max() >= len(classes):
        raise DataError(f"y_test has the label {result['y_test'].max()}, which y_train has not")
    return result


def _checked_examples(key: str, x: NDArray[np.generic], layout: str) -> NDArray[np.generic]:
    if x.dtype != np.uint8 and not np.issubdtype(x.dtype, np.floating):
        raise DataError(f"{key} must be uint8 or float, not {x.dtype}")
    if x.ndim not in (2, 3, 4) or x.size == 0:
        raise DataError(
            f"{key} must be images (N, C, H, W), (N, H, W, C) or (N, H, W), or vectors (N, F), not {x.shape}",
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and _channels_last(x.shape, layout):
        x = x.transpose(0, 3, 1, 2)
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, copy=False)
        if not np.isfinite(x).all():
            raise DataError(f"{key} must be finite in float32; it has nan, inf or larger numbers")
    return np.ascontiguousarray(x)


def _channels_last(shape: tuple[int, ...], layout: str) -> bool:
    if layout != "auto":
        return layout == "NHWC"
    first, last = shape[1] <= 4, shape[3] <= 4
    if first == last:
        raise OptionError("layout", f"cannot be told from the shape {shape}; set it to 'NCHW' or 'NHWC'")
    return last


def _checked_labels(key: str, y: NDArray[np.generic], num_examples: int) -> NDArray[np.int64]:
    if not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{key} must be integers, not {y.dtype}")
    if y.shape not in ((num_examples,), (num_examples, 1)):
        raise DataError(f"{key} must have one label for each of {num_examples} examples, not {y.shape}")
    labels = y.reshape(-1).astype(np.int64)
    if labels.min() < 0:
        raise DataError(f"{key} must not have negative labels; it has {labels.min()}")
    return labels


_AUGMENTATIONS: dict[str, Augmentation | None] = {"none": None, "crop_flip": crop_flip}
