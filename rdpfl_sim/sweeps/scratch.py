"""Where runs are until they are complete, and where those that fail end up."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING

from rdpfl_sim.sweeps.engine import folder_of

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import Run

RUNNING = ".running"
FAILED = "failed"
LOCK = "lock"


class Scratch:
    """A folder in the sweep's output that belongs to one sweep process as long as it lives."""

    def __init__(self, output: Path, path: Path) -> None:
        self.output = output
        self.path = path

    def place_of(self, run: Run) -> Path:
        """Where a run may write; nothing is there yet."""
        return self.path / run.key

    def settle(self, run: Run, error: str | None) -> str | None:
        """Give a run that has ended its place: complete, or failed. The error, and where its records are."""
        place, failed = self.place_of(run), self.output / FAILED / run.key
        shutil.rmtree(failed, ignore_errors=True)  # of an earlier attempt
        if error is None:
            [folder] = [path for path in place.iterdir() if path.is_dir()]
            with suppress(OSError):  # somebody else has completed the same run
                folder.rename(folder_of(run, self.output))
            shutil.rmtree(place)
            return None
        if not place.exists():  # it has not even begun
            return error
        failed.parent.mkdir(exist_ok=True)
        place.rename(failed)
        return f"{error}; what it left: {failed}"


@contextmanager
def scratch_in(output: Path) -> Iterator[Scratch]:
    """A new scratch folder, removed at the end; those of sweeps that have died are removed at once.

    A lock tells whether the owner is alive: two sweeps may work in the same output folder.
    """
    parent = output / RUNNING
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / LOCK).open("w") as gate:
        with suppress(OSError):  # a file system without locks: nothing is removed there
            fcntl.flock(gate, fcntl.LOCK_EX)  # a new folder is not locked yet for a moment
        for path in parent.iterdir():
            if path.is_dir() and _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
        own = Path(mkdtemp(dir=parent))
        lock = (own / LOCK).open("w")
        _lock(lock)
    try:
        yield Scratch(output, own)
    finally:
        shutil.rmtree(own, ignore_errors=True)
        lock.close()


def _is_abandoned(path: Path) -> bool:
    with (path / LOCK).open("a") as lock:
        return _lock(lock)


def _lock(file: IO[str]) -> bool:
    """Whether the file is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
