"""Read and validate the four arrays of a data set from an untrusted .npz file."""

from __future__ import annotations

import zipfile
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rdpfl_sim.errors import OptionError
from rdpfl_sim.system.files import open_input
from rdpfl_sim.system.memory import memory_bytes

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
