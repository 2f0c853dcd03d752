"""Labelled data, stored in memory once. The shard of a client is a list of indices into it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rdpfl_sim.components.options import Count, Doc, NonNegative, PositiveFraction
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError
from rdpfl_sim.files import check_memory, memory_bytes, open_input

DATASETS = Registry("data", Facts)
data = DATASETS.register

Augmentation: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""A function that returns a random variant of each example in a batch, drawn from a CPU generator."""


@dataclass(frozen=True)
class Dataset:
    """Float32 images (N, C, H, W) or vectors (N, F) with int64 labels, for training and for testing."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    num_classes: int
    augment: Augmentation | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (C, H, W) or (F,)."""
        return tuple(self.x_train.shape[1:])


@dataclass(frozen=True)
class Shard:
    """The examples of a data set at `indices`. All shards share `x` and `y`, the tensors of the whole set."""

    x: Tensor
    y: Tensor
    indices: Tensor
    augment: Augmentation | None = None
    """Applied to every batch in training, never in evaluation."""

    def __len__(self) -> int:
        return self.indices.shape[0]

    @cached_property
    def indices_np(self) -> NDArray[np.int64]:
        """The indices as a numpy array."""
        return self.indices.cpu().numpy()

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return copies of the examples and labels at these positions in the shard."""
        chosen = self.indices.index_select(0, positions)
        return self.x.index_select(0, chosen), self.y.index_select(0, chosen)


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


Arrays: TypeAlias = dict[str, NDArray[Any]]

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
MAX_REASON = 200
"""Characters of an error of numpy in a message; some errors contain the whole header."""


class DataError(Exception):
    """Data that cannot be fetched or read. The message contains the reason."""


def read(path: Path) -> Arrays:
    """Return the four arrays in an .npz file."""
    try:
        opened = open_input(path)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    with opened:
        return _read(path, opened)


def _read(path: Path, opened: BinaryIO) -> Arrays:
    if not zipfile.is_zipfile(opened):
        raise DataError(f"{path} is not an .npz file, or is truncated")
    try:
        _check_sizes(opened)
        opened.seek(0)
        with np.load(opened, allow_pickle=False) as file:
            missing = [key for key in ARRAYS if key not in file]
            if missing:
                raise DataError(
                    f"{path} must contain the arrays {', '.join(ARRAYS)}; missing: {', '.join(missing)}"
                )
            arrays = {key: file[key] for key in ARRAYS}
    except DataError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds of errors for a damaged file
        reason = str(error) or type(error).__name__
        raise DataError(f"{path} is damaged or unreadable: {reason[:MAX_REASON]}") from error
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy returns other files in the archive as bytes
            raise DataError(f"{path} is damaged: {key} is not an array")
    return arrays


def _check_sizes(file: BinaryIO) -> None:
    """Raise an error if the arrays would not fit into memory, before any of them is decompressed."""
    with zipfile.ZipFile(file) as archive:
        infos = [archive.getinfo(f"{key}.npy") for key in ARRAYS if f"{key}.npy" in archive.namelist()]
        for info in infos:
            with archive.open(info) as member:
                version = np.lib.format.read_magic(member)
                read_header = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }.get(version)
                if read_header is not None:
                    shape, _, dtype = read_header(member)
                    if prod(shape) * dtype.itemsize > info.file_size:
                        raise ValueError(f"{info.filename} declares the shape {shape} but is truncated")
    needed = sum(info.file_size for info in infos)
    if needed > memory_bytes():
        raise ValueError(f"its arrays need {needed / 1e9:,.0f} GB of memory, more than this machine has")


def validated(arrays: Arrays, layout: str) -> Arrays:
    """Return the arrays as (N, C, H, W) or (N, F) with int64 labels; raise a DataError if invalid."""
    result: Arrays = {}
    for part in ("train", "test"):
        x, y = f"x_{part}", f"y_{part}"
        result[x] = _validated_examples(x, arrays[x], layout)
        result[y] = _validated_labels(y, arrays[y], len(arrays[x]))
    shapes = [list(result[key].shape[1:]) for key in ("x_train", "x_test")]
    if shapes[0] != shapes[1]:
        raise DataError(f"examples of x_train have the shape {shapes[0]}, those of x_test {shapes[1]}")
    if result["x_train"].dtype != result["x_test"].dtype:
        raise DataError("x_train and x_test must both be uint8 or both be float, on the same scale")
    classes = np.unique(result["y_train"])
    if not np.array_equal(classes, np.arange(len(classes))):
        absent = next(label for label, found in enumerate([*classes, -1]) if label != found)
        raise DataError(
            f"y_train must contain every label from 0 to the largest, {classes[-1]}; {absent} is missing"
        )
    if result["y_test"].max() >= len(classes):
        raise DataError(f"y_test has the label {result['y_test'].max()}, which is not in y_train")
    return result


def _validated_examples(key: str, x: NDArray[np.generic], layout: str) -> NDArray[np.generic]:
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
            raise DataError(f"{key} must be finite in float32; found nan, inf or numbers that are too large")
    return np.ascontiguousarray(x)


def _channels_last(shape: tuple[int, ...], layout: str) -> bool:
    if layout != "auto":
        return layout == "NHWC"
    first, last = shape[1] <= 4, shape[3] <= 4
    if first == last:
        raise OptionError("layout", f"cannot be inferred from the shape {shape}; set it to 'NCHW' or 'NHWC'")
    return last


def _validated_labels(key: str, y: NDArray[np.generic], num_examples: int) -> NDArray[np.int64]:
    if y.dtype.kind not in "iu":  # numpy counts timedelta64 as an integer
        raise DataError(f"{key} must be integers, not {y.dtype}")
    if y.shape != (num_examples,):
        raise DataError(f"{key} must have one label per example: the shape ({num_examples},), not {y.shape}")
    labels = y.astype(np.int64)
    if labels.min() < 0:
        raise DataError(f"{key} must have no negative labels; the smallest is {labels.min()}")
    return labels
