"""Safe access to files, including untrusted run and sweep folders.

Only regular files are opened: a pipe could block forever, and a device such as /dev/zero has no end. Inside
the folder of a run or a sweep, symbolic links are rejected because they could lead outside of the folder. The
folder itself is chosen by the user and may be a link.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from rdpfl_sim.errors import OptionError, RunError


class UnsafeFileError(OSError):
    """A file or folder that is rejected because of its type or size, such as a link or a pipe."""


MAX_LINE_BYTES = 64 << 20
"""Longer than any valid record: a record that lists a million clients has about 8 MB."""

PARTIAL = ".partial"
"""Suffix of files that are being written."""

_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # missing on Windows, where only _reject_link detects links


def open_input(path: str | Path) -> BinaryIO:
    """Open a regular file given by the user, following links."""
    return os.fdopen(_open(Path(path), os.O_RDONLY, follow_links=True), "rb")


def read_input(path: str | Path, max_bytes: int) -> bytes:
    """Return the content of a regular file given by the user; .gz and .bz2 are decompressed."""
    with open_input(path) as file:
        content = _decompressed(file, str(path)).read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UnsafeFileError(errno.EFBIG, f"is larger than {max_bytes >> 20} MiB", str(path))
    return content


def _decompressed(file: BinaryIO, name: str) -> BinaryIO:
    if name.endswith(".gz"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=file))
    return cast("BinaryIO", bz2.BZ2File(file)) if name.endswith(".bz2") else file


def open_inside(path: Path) -> BinaryIO:
    """Open a regular file inside a run or sweep folder for reading."""
    return os.fdopen(_open(path, os.O_RDONLY), "rb")


def lines_inside(path: Path) -> Generator[bytes, None, None]:
    """Yield the lines of a file inside a run folder; raise an error at a line of `MAX_LINE_BYTES`."""
    with open_inside(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES:
                raise UnsafeFileError(errno.EFBIG, f"has a line of {MAX_LINE_BYTES >> 20} MiB", str(path))
            yield line


def size_inside(path: Path) -> int:
    """Return the size of a regular file inside a run folder, or 0 if it does not exist."""
    try:
        with open_inside(path) as file:
            return os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return 0


def open_to_append(path: Path, buffering: int = -1) -> BinaryIO:
    """Open a regular file inside a run folder for appending and truncating; create it if necessary."""
    return os.fdopen(_open_unshared(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab", buffering)


def open_to_change(path: Path) -> BinaryIO:
    """Open an existing regular file inside a run folder for reading and truncating."""
    return os.fdopen(_open_unshared(path, os.O_RDWR), "r+b")


def create(path: Path) -> BinaryIO:
    """Create a file for writing; raise an error if the path exists, even as a broken link."""
    return os.fdopen(_open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` once it is complete and on disk.

    A link at `path` is itself replaced. If the file cannot be written, nothing changes.
    """
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        with create(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and str(error.filename) == str(temporary):
            error.filename, error.filename2 = str(path), None  # the name that the user expects
        raise


Buffer: TypeAlias = bytes | memoryview


def write_atomically(path: Path, content: bytes | Iterable[Buffer]) -> None:
    """Write a file completely or not at all, even if the process or the machine crashes."""
    with open_atomic(path) as file:
        file.writelines([content] if isinstance(content, bytes) else content)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename durable: a rename changes the folder, not the file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync folders
            raise
    finally:
        os.close(descriptor)


def remove_partial(path: Path) -> None:
    """Remove partial files of killed processes; only the process that writes `path` may call this."""
    for partial in path.parent.glob(f".{path.name}.*{PARTIAL}"):
        partial.unlink()


def make_folder(path: Path) -> None:
    """Create a folder unless it exists; raise an error if the path is a link or a file."""
    with suppress(FileExistsError):
        make_new_folder(path)
    check_folder(path)


def make_new_folder(path: Path, parents: bool = False) -> None:
    """Create a folder, with missing parents if told so, and make it durable; raise an error if it exists."""
    missing = [parent for parent in path.parents if not parent.exists()]
    path.mkdir(parents=parents)
    for folder in (path, *missing):
        sync_folder(folder.parent)


def check_folder(path: Path) -> None:
    """Raise an error if the path exists and is not a folder, or is a link."""
    _reject_link(path)
    if path.exists() and not path.is_dir():
        raise UnsafeFileError(errno.ENOTDIR, "is not a folder", str(path))


def _open_unshared(path: Path, flags: int) -> int:
    """Open a file for modification; reject one with other hard links, which may be outside the folder."""
    descriptor = _open(path, flags)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise UnsafeFileError(errno.EMLINK, "has other hard links, which must not change", str(path))
    return descriptor


def _open(path: Path, flags: int, follow_links: bool = False) -> int:
    if not follow_links:
        _reject_link(path)
        flags |= _NO_LINK
    try:
        descriptor = os.open(path, flags | _FLAGS, 0o666)
    except ValueError as error:  # a NUL character
        raise OSError(errno.EINVAL, f"is not a valid path ({error})", str(path)) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise UnsafeFileError(errno.EINVAL, "is not a regular file", str(path))
    return descriptor


def _reject_link(path: Path) -> None:
    if os.path.islink(path):
        raise UnsafeFileError(errno.ELOOP, "is a symbolic link, which is not followed here", str(path))


CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int:
    """Return the total memory of this machine or container."""
    limits = [1 << 40]
    with suppress(OSError, ValueError, AttributeError):  # Windows has no sysconf
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):
        limits.append(int(CONTAINER_LIMIT.read_text()))
    return min(limits)


def check_memory(option: str, num_bytes: int) -> None:
    """Raise an `OptionError` if an option needs more memory than this machine has."""
    if num_bytes > memory_bytes():
        message = f"needs {_gigabytes(num_bytes)} of memory; this machine has {_gigabytes(memory_bytes())}"
        raise OptionError(option, message)


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes // 10**9:,} GB" if num_bytes < 10**18 else "more than 1,000,000,000 GB"


JsonObject: TypeAlias = dict[str, Any]
"""The content of a JSON file or a record, with types that depend on the file."""

MAX_BYTES = 1 << 29
"""Larger files are considered damaged. topology.json has about 50 bytes per link."""


def encode_json(content: Any) -> bytes:
    """Return the bytes of a JSON file, indented for human readers."""
    import orjson  # `doctor` uses this module where the dependencies are missing

    return orjson.dumps(
        content, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    )


def read_json(path: Path) -> JsonObject:
    """Return the table in a JSON file; raise `FileNotFoundError`, or `RunError` if it is damaged."""
    with open_inside(path) as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise RunError(f"{path} is damaged: it is larger than {MAX_BYTES >> 20} MiB")
    import orjson

    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is damaged: it does not contain a table")
    return content


def read_json_if_present(path: Path) -> JsonObject | None:
    """Return the table in a JSON file, or None if the file does not exist."""
    try:
        return read_json(path)
    except FileNotFoundError:
        return None
