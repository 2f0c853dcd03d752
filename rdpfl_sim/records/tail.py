"""Follow a run in another process: read appended lines and detect whether it is still running."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from rdpfl_sim.records.run_folder import SUMMARY
from rdpfl_sim.system.files import open_inside, size_inside

CHUNK = 1 << 22


class Follower:
    """Reads complete lines appended to a file; starts again if the file is truncated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._rest = b""

    def has_restarted(self) -> bool:
        """Return whether the file was truncated; reading then restarts with its first line."""
        restarted = size_inside(self.path) < self._position
        if restarted:
            self._position, self._rest = 0, b""
        return restarted

    def chunks(self) -> Iterator[list[bytes]]:
        """Yield the complete lines appended since the last call, in batches."""
        if size_inside(self.path) <= self._position:
            return
        with open_inside(self.path) as file:
            file.seek(self._position)
            while content := file.read(CHUNK):
                self._position += len(content)
                *lines, self._rest = (self._rest + content).split(b"\n")
                yield lines


def is_running(folder: Path) -> bool:
    """Return whether a process has locked the run folder or, without locks, the summary is missing."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return not (folder / SUMMARY).exists()
    finally:
        os.close(descriptor)
    return False
