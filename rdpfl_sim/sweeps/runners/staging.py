"""Staging folders for incomplete runs, and the folder of failed runs."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, BinaryIO

from rdpfl_sim.records.run_folder import RUNS
from rdpfl_sim.sweeps.results import folder_of, read_summary
from rdpfl_sim.system.files import check_folder, make_folder, open_to_append

if TYPE_CHECKING:
    from rdpfl_sim.sweeps.plan import PlannedRun

RUNNING = ".running"
FAILED = "failed"
LOCK = "lock"
DAMAGED = "damaged"


class StagingFolder:
    """A folder in the sweep's output that belongs to one sweep process while it runs."""

    def __init__(self, output: Path, path: Path) -> None:
        self.output = output
        self.path = path

    def path_for(self, run: PlannedRun) -> Path:
        """Return a path for a run; it does not exist yet."""
        return self.path / run.key

    def finish(self, run: PlannedRun, error: str | None) -> str | None:
        """Move an ended run to the complete or failed runs; return its error with the path to its files."""
        staged, failed = self.path_for(run), self.output / FAILED / run.key
        shutil.rmtree(failed, ignore_errors=True)  # left by an earlier attempt
        if error is None:
            [folder] = [path for path in staged.iterdir() if path.is_dir()]
            complete = folder_of(run, self.output)
            if complete.exists() and read_summary(run, self.output) is None:
                complete.rename(staged / DAMAGED)  # removed together with `staged`
            make_folder(complete.parent)
            with suppress(OSError):  # another sweep has completed the same run
                folder.rename(complete)
            shutil.rmtree(staged)
            return None
        if not staged.exists():  # the run failed before it wrote anything
            return error
        make_folder(failed.parent)
        staged.rename(failed)
        return f"{error}; its files are in {failed}"


@contextmanager
def staging_folder(output: Path) -> Iterator[StagingFolder]:
    """Create a staging folder in a sweep's output; remove it at the end."""
    for name in (RUNS, FAILED):
        check_folder(output / name)
    with locked_folder(output / RUNNING) as path:
        yield StagingFolder(output, path)


@contextmanager
def locked_folder(parent: Path) -> Iterator[Path]:
    """Create a folder inside `parent` and remove it at the end; first remove folders of dead processes.

    Several processes may have folders in `parent`. Each process locks its folder, so a folder without a lock
    is abandoned.
    """
    parent.parent.mkdir(parents=True, exist_ok=True)
    make_folder(parent)
    with open_to_append(parent / LOCK) as parent_lock:
        with suppress(OSError):  # a file system without locks: nothing is removed there
            fcntl.flock(parent_lock, fcntl.LOCK_EX)  # a new folder is unlocked for a moment
        for path in parent.iterdir():
            if path.is_dir() and not path.is_symlink() and _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
        folder = Path(mkdtemp(dir=parent))
        lock = open_to_append(folder / LOCK)
        _try_lock(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def _is_abandoned(path: Path) -> bool:
    with open_to_append(path / LOCK) as lock:
        return _try_lock(lock)


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
