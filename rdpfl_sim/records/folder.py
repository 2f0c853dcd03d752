"""The run folder: `runs/<name>-<time>/`. Whole files appear at once or not at all.

Events and metrics grow line by line. What was written after the last checkpoint can be cut off again.
"""

from __future__ import annotations

import csv
import fcntl
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import tomli_w

METRICS = (
    "time_s",
    "client",
    "byzantine",
    "round",
    "hops",
    "personal_accuracy",
    "personal_loss",
    "global_accuracy",
    "global_loss",
    "used_per_round",
    "mean_age",
    "clipped",
    "bounded",
    "byzantine_weight",
)
"""The columns of metrics.csv; those from `used_per_round` on are means since the client's last evaluation."""


COMPLETE = ("finished", "out of time")
"""The status of a run that is over, and not to be resumed."""


class RunFolder:
    """The files of one run. While it is open nobody else can open it: BlockingIOError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: BinaryIO = (path / "events.jsonl").open("ab", buffering=1 << 20)
        self._metrics_file = (path / "metrics.csv").open("a", newline="", encoding="utf-8")
        self._metrics = csv.DictWriter(self._metrics_file, METRICS, lineterminator="\n")
        self._lock = _locked(path)

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
        write_atomically(self.path / "scenario.toml", tomli_w.dumps(scenario).encode())

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
        return (self.path / "scenario.toml").read_text(encoding="utf-8")

    def start_afresh(self) -> None:
        """Forget all events and metrics."""
        self.cut_off((0, 0))
        self._metrics.writeheader()

    def sync(self) -> list[int]:
        """See that events and metrics are on the disk; how many bytes there are of each."""
        self.events.flush()
        self._metrics_file.flush()
        for descriptor in self._descriptors():
            os.fsync(descriptor)
        return self._sizes()

    def cut_off(self, sizes: Sequence[int]) -> bool:
        """Keep so many bytes of events and metrics; False, and nothing done, if there are not so many."""
        if any(size > present for size, present in zip(sizes, self._sizes(), strict=True)):
            return False
        for descriptor, size in zip(self._descriptors(), sizes, strict=True):
            os.truncate(descriptor, size)
        return True

    def close(self) -> None:
        """Close the open files, and let others in."""
        self.events.close()
        self._metrics_file.close()
        os.close(self._lock)

    def _descriptors(self) -> tuple[int, int]:
        return self.events.fileno(), self._metrics_file.fileno()

    def _sizes(self) -> list[int]:
        return [os.fstat(descriptor).st_size for descriptor in self._descriptors()]


def is_complete(folder: Path) -> bool:
    """Whether the run in a folder has come to its end."""
    try:
        status = orjson.loads((folder / "summary.json").read_bytes())["status"]
    except (OSError, ValueError, KeyError):
        return False
    return status in COMPLETE


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.csv, as numbers; what was not measured is None."""
    whole = {"client", "byzantine", "round", "hops"}
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return [
            {
                key: None if value == "" else int(value) if key in whole else float(value)
                for key, value in row.items()
            }
            for row in csv.DictReader(file)
        ]


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
    """Write a file that is never seen half-written, even after a crash."""
    temporary = path.with_name(f".{path.name}.partial")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
