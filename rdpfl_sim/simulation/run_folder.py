"""Write the run folder `runs/<name>-<time>/` from the process that runs the simulation.

Small files are written atomically. Events and metrics grow line by line; lines written after the last
checkpoint can be truncated.
"""

from __future__ import annotations

import csv
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from time import monotonic
from traceback import format_exception
from typing import Any, BinaryIO

import tomli_w

from rdpfl_sim.files import (
    Buffer,
    JsonObject,
    encode_json,
    make_new_folder,
    open_inside,
    open_to_append,
    open_to_change,
    remove_partial,
    write_atomically,
)
from rdpfl_sim.records.files import (
    EVENTS,
    METRICS_FILE,
    MODELS_FILE,
    PROVENANCE,
    SCENARIO,
    SUMMARY,
    TOPOLOGY,
    TRACEBACK,
)
from rdpfl_sim.records.metrics import METRICS, MetricsRow
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.schema import SCHEMA
from rdpfl_sim.records.status import RunStatus

CHUNK = 1 << 16
FLUSH_EVERY_S = 1.0


class RunFolder:
    """The files of one run. Only one process can open the folder: others get `BlockingIOError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: BinaryIO = open_to_append(path / EVENTS, buffering=1 << 20)
        self._metrics_file = TextIOWrapper(open_to_append(path / METRICS_FILE), newline="", encoding="utf-8")
        self._metrics = csv.DictWriter(self._metrics_file, METRICS, lineterminator="\n")
        self._lock: int | None = _lock(path)
        for name in (SCENARIO, TOPOLOGY, PROVENANCE, MODELS_FILE, SUMMARY, TRACEBACK):
            remove_partial(path / name)
        self._flushed_at_s = monotonic()

    @classmethod
    def create(cls, parent: Path, name: str) -> RunFolder:
        """Create a folder named after the scenario and the wall-clock time."""
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        suffix = 0
        while True:
            path = parent / (f"{name}-{stamp}" if suffix == 0 else f"{name}-{stamp}-{suffix}")
            try:
                make_new_folder(path, parents=True)
            except FileExistsError:
                suffix += 1
            else:
                folder = cls(path)
                folder.start_afresh()
                return folder

    def write_scenario(self, scenario: JsonObject) -> None:
        """Write the resolved scenario: every option with its value."""
        write_atomically(self.path / SCENARIO, tomli_w.dumps(scenario).encode())

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file."""
        write_atomically(self.path / name, encode_json(value))

    def write_models(self, blocks: Iterable[Buffer]) -> None:
        """Write the saved models."""
        write_atomically(self.path / MODELS_FILE, blocks)

    def write_metrics(self, row: MetricsRow) -> None:
        """Append one evaluation of one client to metrics.csv."""
        self._metrics.writerow(row)

    def read_metrics(self) -> Iterator[MetricsRow]:
        """Yield all rows of metrics.csv so far."""
        self._metrics_file.flush()
        return RunReader(self.path).metrics_rows()

    @property
    def scenario(self) -> str:
        """The text of scenario.toml."""
        with open_inside(self.path / SCENARIO) as file:
            return file.read().decode()

    def start_afresh(self) -> None:
        """Discard all events and metrics."""
        self.truncate((0, 0))
        self._metrics.writeheader()

    def flush(self) -> None:
        """Flush events and metrics for other processes, at most once per second."""
        now_s = monotonic()
        if now_s >= self._flushed_at_s + FLUSH_EVERY_S:
            self._flushed_at_s = now_s
            self.events.flush()
            self._metrics_file.flush()

    def sync(self) -> list[int]:
        """Force events and metrics to the disk and return their sizes in bytes."""
        self.events.flush()
        self._metrics_file.flush()
        for descriptor in self._descriptors():
            os.fsync(descriptor)
        return self._sizes()

    def truncate(self, sizes: Sequence[int]) -> bool:
        """Truncate events and metrics to these sizes; if a file is shorter, change nothing, return False."""
        if any(size > present for size, present in zip(sizes, self._sizes(), strict=True)):
            return False
        for descriptor, size in zip(self._descriptors(), sizes, strict=True):
            os.truncate(descriptor, size)
        return True

    def close(self) -> None:
        """Close the open files and release the lock."""
        try:
            self.events.close()
        finally:
            try:
                self._metrics_file.close()
            finally:
                if self._lock is not None:
                    os.close(self._lock)
                    self._lock = None

    def write_traceback(self, error: BaseException) -> None:
        """Write the traceback of an error if the disk has enough space."""
        with suppress(OSError):
            write_atomically(self.path / TRACEBACK, "".join(format_exception(error)).encode())

    def mark_failed(self, error: str) -> None:
        """Remove partly written lines; write the error to summary.json if the disk has enough space."""
        with suppress(OSError):  # buffered data cannot be written either
            self.close()
        for name in (EVENTS, METRICS_FILE):
            _truncate_partial_line(self.path / name)
        with suppress(OSError):
            self.write_json(SUMMARY, {"schema": SCHEMA, "status": RunStatus.FAILED, "error": error})

    def _descriptors(self) -> tuple[int, int]:
        return self.events.fileno(), self._metrics_file.fileno()

    def _sizes(self) -> list[int]:
        return [os.fstat(descriptor).st_size for descriptor in self._descriptors()]


def _lock(folder: Path) -> int:
    """Lock the folder and return a descriptor. Closing the descriptor or ending the process unlocks it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        pass  # a file system without locks
    return descriptor


def _truncate_partial_line(path: Path) -> None:
    with suppress(OSError), open_to_change(path) as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - CHUNK)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                file.truncate(start + newline + 1)
                return
            end = start
        file.truncate(0)
