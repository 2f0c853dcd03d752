"""Where runs are until they are complete, and where those that fail end up."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, BinaryIO

from rdpfl_sim.sweeps.runner import folder_of, summary_of
from rdpfl_sim.system.files import check_folder, make_folder, open_to_append

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun

RUNNING = ".running"
FAILED = "failed"
LOCK = "lock"
DAMAGED = "damaged"


class Scratch:
    """A folder in the sweep's output that belongs to one sweep process as long as it lives."""

    def __init__(self, output: Path, path: Path) -> None:
        self.output = output
        self.path = path

    def place_of(self, run: PlannedRun) -> Path:
        """Where a run may write; nothing is there yet."""
        return self.path / run.key

    def settle(self, run: PlannedRun, error: str | None) -> str | None:
        """Give a run that has ended its place: complete, or failed. The error, and where its records are."""
        place, failed = self.place_of(run), self.output / FAILED / run.key
        shutil.rmtree(failed, ignore_errors=True)  # of an earlier attempt
        if error is None:
            [folder] = [path for path in place.iterdir() if path.is_dir()]
            complete = folder_of(run, self.output)
            if complete.exists() and summary_of(run, self.output) is None:
                complete.rename(place / DAMAGED)  # goes with `place`
            with suppress(OSError):  # another sweep has completed the same run
                folder.rename(complete)
            shutil.rmtree(place)
            return None
        if not place.exists():  # it has not even begun
            return error
        make_folder(failed.parent)
        place.rename(failed)
        return f"{error}; what it left: {failed}"


@contextmanager
def scratch_in(output: Path) -> Iterator[Scratch]:
    """A new scratch folder in a sweep's output, removed at the end."""
    check_folder(output / FAILED)
    with own_folder(output / RUNNING) as own:
        yield Scratch(output, own)


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A new folder within `parent`, removed at the end; those of dead processes are removed at once.

    A lock tells whether the owner is alive: several processes may have folders in `parent`.
    """
    parent.parent.mkdir(parents=True, exist_ok=True)
    make_folder(parent)
    with open_to_append(parent / LOCK) as gate:
        with suppress(OSError):  # a file system without locks: nothing is removed there
            fcntl.flock(gate, fcntl.LOCK_EX)  # a new folder is not locked yet for a moment
        for path in parent.iterdir():
            if path.is_dir() and not path.is_symlink() and _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
        own = Path(mkdtemp(dir=parent))
        lock = open_to_append(own / LOCK)
        _lock(lock)
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        lock.close()


def _is_abandoned(path: Path) -> bool:
    with open_to_append(path / LOCK) as lock:
        return _lock(lock)


def _lock(file: BinaryIO) -> bool:
    """Whether the file is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
