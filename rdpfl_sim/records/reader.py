"""Reading the records of a run one after the other, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.run_folder import EVENTS
from rdpfl_sim.system.files import lines_inside, size_inside


def record_lines(folder: Path) -> Iterator[bytes]:
    """The lines of events.jsonl, but not half a line at its end; a `RunError` if there are none."""
    path = folder / EVENTS
    if size_inside(path) == 0:
        raise RunError(f"{path} has no records: the run has output.events = false, or has only begun")
    return _whole_lines(path)


def _whole_lines(path: Path) -> Iterator[bytes]:
    return (line for line in lines_inside(path) if line.endswith(b"\n"))
