"""The run folder: `runs/<name>-<time>/`. Whole files appear at once or not at all.

Events and metrics grow line by line. What was written after the last checkpoint can be cut off again.
"""

from __future__ import annotations

import csv
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from time import monotonic
from traceback import format_exception
from typing import Any, BinaryIO

import orjson
import tomli_w

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.metrics_file import METRICS
from rdpfl_sim.system.files import open_atomic, open_inside, open_to_append, open_to_change, remove_partial

EVENTS, METRICS_FILE = "events.jsonl", "metrics.csv"
SCENARIO, TOPOLOGY, PROVENANCE, SUMMARY = "scenario.toml", "topology.json", "provenance.json", "summary.json"
CHECKPOINTS = "checkpoints"
TRACEBACK = "traceback.txt"
CHUNK = 1 << 16
SHOW_EVERY_S = 1.0

COMPLETE = ("finished", "out of time")
"""The status of a run that is over, and not to be resumed."""


class RunFolder:
    """The files of one run. While it is open nobody else can open it: BlockingIOError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: BinaryIO = open_to_append(path / EVENTS, buffering=1 << 20)
        self._metrics_file = TextIOWrapper(open_to_append(path / METRICS_FILE), newline="", encoding="utf-8")
        self._metrics = csv.DictWriter(self._metrics_file, METRICS, lineterminator="\n")
        self._lock: int | None = _locked(path)
        for name in (SCENARIO, TOPOLOGY, PROVENANCE, SUMMARY):
            remove_partial(path / name)
        self._shown_at_s = monotonic()

    @classmethod
    def create(cls, parent: Path, name: str) -> RunFolder:
        """A new folder, named by the scenario and the wall-clock time."""
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        suffix = 0
        while True:
            path = parent / (f"{name}-{stamp}" if suffix == 0 else f"{name}-{stamp}-{suffix}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                suffix += 1
            else:
                folder = cls(path)
                folder.start_afresh()
                return folder

    def write_scenario(self, scenario: dict[str, Any]) -> None:
        """The resolved scenario: every option with its value."""
        write_atomically(self.path / SCENARIO, tomli_w.dumps(scenario).encode())

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file, readable by people."""
        write_atomically(
            self.path / name,
            orjson.dumps(
                value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
            ),
        )

    def write_metrics(self, row: dict[str, Any]) -> None:
        """One evaluation of one client."""
        self._metrics.writerow(row)

    @property
    def scenario(self) -> str:
        """The resolved scenario, as it is written."""
        return read_inside(self.path / SCENARIO).decode()

    def start_afresh(self) -> None:
        """Forget all events and metrics."""
        self.truncate((0, 0))
        self._metrics.writeheader()

    def show(self) -> None:
        """Let others see what was written, at most once a second; it is called after every training."""
        now_s = monotonic()
        if now_s >= self._shown_at_s + SHOW_EVERY_S:
            self._shown_at_s = now_s
            self.events.flush()
            self._metrics_file.flush()

    def sync(self) -> list[int]:
        """See that events and metrics are on the disk; how many bytes there are of each."""
        self.events.flush()
        self._metrics_file.flush()
        for descriptor in self._descriptors():
            os.fsync(descriptor)
        return self._sizes()

    def truncate(self, sizes: Sequence[int]) -> bool:
        """Keep so many bytes of events and metrics; False, and nothing done, if there are not so many."""
        if any(size > present for size, present in zip(sizes, self._sizes(), strict=True)):
            return False
        for descriptor, size in zip(self._descriptors(), sizes, strict=True):
            os.truncate(descriptor, size)
        return True

    def close(self) -> None:
        """Close the open files, and let others in."""
        try:
            self.events.close()
        finally:
            try:
                self._metrics_file.close()
            finally:
                if self._lock is not None:
                    os.close(self._lock)
                    self._lock = None

    def write_traceback(self, error: Exception) -> None:
        """Write down where in the code a run has failed, if there is room."""
        with suppress(OSError):
            write_atomically(self.path / TRACEBACK, "".join(format_exception(error)).encode())

    def mark_failed(self, error: str) -> None:
        """Leave what a run that has failed could write: whole lines, and the reason if there is room."""
        with suppress(OSError):  # what is still buffered cannot be written either
            self.close()
        for name in (EVENTS, METRICS_FILE):
            _cut_half_a_line(self.path / name)
        with suppress(OSError):
            self.write_json(SUMMARY, {"status": "failed", "error": error})

    def _descriptors(self) -> tuple[int, int]:
        return self.events.fileno(), self._metrics_file.fileno()

    def _sizes(self) -> list[int]:
        return [os.fstat(descriptor).st_size for descriptor in self._descriptors()]


def is_complete(folder: Path) -> bool:
    """Whether the run in a folder has come to its end."""
    try:
        summary = orjson.loads(read_inside(folder / SUMMARY))
    except (FileNotFoundError, orjson.JSONDecodeError):
        return False
    return isinstance(summary, dict) and summary.get("status") in COMPLETE


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.csv, as numbers; what was not measured is None."""
    whole = {"client", "byzantine", "round", "hops"}
    with TextIOWrapper(open_inside(folder / METRICS_FILE), newline="", encoding="utf-8") as file:
        return [
            {
                key: None if value == "" else int(value) if key in whole else float(value)
                for key, value in row.items()
            }
            for row in csv.DictReader(file)
        ]


def read_inside(path: Path) -> bytes:
    """Return the content of a file in a run folder."""
    with open_inside(path) as file:
        return file.read()


def read_json(path: Path) -> dict[str, Any]:
    """The table in a JSON file, or a `RunError` if it is damaged."""
    try:
        content = orjson.loads(read_inside(path))
    except orjson.JSONDecodeError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is damaged: it holds no table")
    return content


def read_json_if_there(path: Path) -> dict[str, Any] | None:
    """The table in a JSON file, or None if there is no file."""
    try:
        return read_json(path)
    except FileNotFoundError:
        return None


def run_folder_problem(path: Path) -> str | None:
    """Why a path is not the folder of a run, or None if it is."""
    if (path / SCENARIO).is_file():
        return None
    if not path.is_dir():
        return f"{path} is not a folder" if path.exists() else f"there is no folder {path}"
    newest = newest_run(path)
    hint = "" if newest is None else f"; the newest run in it is {newest}"
    return f"{path} is not the folder of a run: it has no {SCENARIO}{hint}"


def newest_run(path: Path) -> Path | None:
    """The newest of the runs in a folder, if there is one."""
    runs = [scenario.parent for scenario in path.glob(f"*/{SCENARIO}")]
    return max(runs, key=lambda run: run.stat().st_mtime, default=None)


def last_record(folder: Path) -> dict[str, Any] | None:
    """The last whole record of a run, if there is one."""
    path = folder / EVENTS
    if not path.exists():
        return None
    with open_inside(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - CHUNK))
        lines = file.read().splitlines(keepends=True)
    whole = [line for line in lines[-2:] if line.endswith(b"\n")]
    record: dict[str, Any] | None = orjson.loads(whole[-1]) if whole else None
    return record


def _locked(folder: Path) -> int:
    """An open descriptor of the folder that keeps others out until it is closed, or its process ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        pass  # a file system without locks
    return descriptor


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is never seen half-written, even after a crash; if it cannot be, nothing changes."""
    with open_atomic(path) as file:
        file.write(content)


def _cut_half_a_line(path: Path) -> None:
    """Let a file end with its last whole line."""
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
