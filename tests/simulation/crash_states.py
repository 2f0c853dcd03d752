"""States of a run folder from the last event to the last file, as a kill or a power failure leaves them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from rdpfl_sim.records.status import RunStatus
from rdpfl_sim.simulation.simulation import Simulation

OPERATIONS = ("fsync", "mkdir", "open", "replace", "rmdir", "truncate", "unlink")
"""Functions of `os` that every file operation of a run calls; bytes are written between them."""

Content = dict[str, bytes | None]
"""All files of a folder by relative path; None is a folder."""


def states_after_last_event(run: Callable[[], object], copies: Path) -> list[Path]:
    """Execute a run; return copies of its folder, one for every change after the last event.

    A process that is killed leaves one of them. An interruption counts as the last event.
    """
    states: list[Path] = []
    folders: list[Path] = []
    is_copying = False

    def copy() -> None:
        nonlocal is_copying
        if folders and not is_copying and (not states or content(states[-1]) != content(folders[0])):
            is_copying = True
            states.append(shutil.copytree(folders[0], copies / f"{len(states):03d}"))
            is_copying = False

    end = Simulation._end

    def end_and_copy(simulation: Simulation, status: RunStatus) -> None:
        end(simulation, status)
        assert simulation.files is not None
        folders[:] = [simulation.files.path]
        copy()

    with ExitStack() as stack:
        stack.enter_context(patch.object(Simulation, "_end", end_and_copy))
        for name in OPERATIONS:
            stack.enter_context(patch.object(os, name, _preceded_by(copy, getattr(os, name))))
        run()
        copy()
    return states


def torn_states(states: Sequence[Path], copies: Path, random: Random, num_cuts: int) -> Iterator[Path]:
    """Yield states that a power failure leaves: files that end at any byte, and renames that are undone."""
    contents, num = [content(state) for state in states], 0
    for place, (before, after) in enumerate(pairwise(contents)):
        moved = {
            name: source
            for name in after.keys() - before.keys()
            for source in before.keys() - after.keys()
            if after[name] is not None and after[name] == before[source]
        }
        grown = [name for name in sorted(after.keys() - moved.keys()) if _has_grown(name, before, after)]
        for _ in range(num_cuts if grown else 0):
            cut = shutil.copytree(states[place + 1], copies / f"torn-{num:03d}")
            for name in grown:
                os.truncate(
                    cut / name, random.randrange(len(before.get(name) or b""), len(after[name] or b""))
                )
            num += 1
            yield cut
        for name, source in moved.items():
            for state, later in zip(states[place + 1 :], contents[place + 1 :], strict=True):
                if later.get(name) == after[name]:
                    undone = shutil.copytree(state, copies / f"torn-{num:03d}")
                    (undone / source).parent.mkdir(exist_ok=True)
                    (undone / name).rename(undone / source)
                    num += 1
                    yield undone


def results(folder: Path) -> dict[str, Any]:
    """Return all files of a run except provenance.json, without wall-clock times."""
    files: dict[str, Any] = {**content(folder)}
    del files["provenance.json"]
    files["summary.json"] = {**json.loads(files["summary.json"]), "wall": None}
    return files


def content(folder: Path) -> Content:
    """Return all files of a folder."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def _has_grown(name: str, before: Content, after: Content) -> bool:
    old, new = before.get(name, b""), after[name]
    return old is not None and new is not None and len(new) > len(old) and new.startswith(old)


def _preceded_by(action: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    def both(*arguments: Any, **options: Any) -> Any:
        action()
        return function(*arguments, **options)

    return both
