"""Reading the records of a run one after the other, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.folder import EVENTS


def record_lines(folder: Path) -> Iterator[bytes]:
    """The lines of events.jsonl, but not half a line at its end; a `RunError` if there are none."""
    path = folder / EVENTS
    if not path.exists() or path.stat().st_size == 0:
        raise RunError(f"{path} has no records: the run has output.events = false, or has only begun")
    return _whole_lines(path)


def _whole_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line
