"""States in which a file system may leave a run folder after a kill or a power failure, at any moment.

A killed process leaves everything that it has done so far. After a power failure, only what was forced to
the disk with fsync is certain: of a file, its content and not its name; of a folder, the names in it and
nothing else. Any other change may be missing or incomplete, independently of earlier and later ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from math import inf
from pathlib import Path
from random import Random
from typing import Any, TypeAlias
from unittest.mock import patch

from rdpfl_sim import Scenario, ScenarioError, resume
from rdpfl_sim.records.files import RUNS
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.simulation import run_folder
from rdpfl_sim.simulation.checkpoint import CheckpointWriter
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.resume import remove_checkpoints, scenario_of
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.simulation.simulation import Simulation

OPERATIONS = ("fsync", "link", "mkdir", "open", "remove", "rename", "replace", "rmdir", "truncate", "unlink")
"""Functions of `os` that every file operation of a run calls; bytes are written between them."""

SHARE_OF_KILLS = 0.2
"""The others are power failures."""

REFUSED, FROM_THE_BEGINNING, COMPLETE = -1, 0, inf
"""Where a run is resumed if not after a number of local trainings."""


@dataclass(eq=False)
class Inode:
    """A file or folder, whatever its name."""

    is_folder: bool


@dataclass(frozen=True)
class Names:
    """Names in a folder that change together: one is added, removed (None) or replaced by another."""

    inode: Inode
    changed: dict[str, Inode | None]


@dataclass(frozen=True)
class Write:
    """Bytes written to a file."""

    inode: Inode
    start: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    """A file is shortened."""

    inode: Inode
    size: int


@dataclass(frozen=True)
class Sync:
    """All previous changes to a file, or to the names in a folder, are forced to the disk."""

    inode: Inode


Operation: TypeAlias = Names | Write | Truncate | Sync


@dataclass
class Disk:
    """The files below the folder `root`."""

    root: Inode
    names: dict[Inode, dict[str, Inode]] = field(default_factory=dict)
    contents: dict[Inode, bytes] = field(default_factory=dict)

    def apply(self, operation: Operation) -> None:
        """Execute an operation. A write beyond the end of a file leaves a gap of zeros."""
        match operation:
            case Names(folder, changed):
                names = {**self.names.get(folder, {}), **changed}
                self.names[folder] = {name: inode for name, inode in names.items() if inode is not None}
            case Write(file, start, data):
                old = self.contents.get(file, b"")
                self.contents[file] = old[:start].ljust(start, b"\0") + data + old[start + len(data) :]
            case Truncate(file, size):
                self.contents[file] = self.contents.get(file, b"")[:size]

    def files(self) -> Iterator[tuple[Path, Inode]]:
        """Yield all files and folders with their paths, folders before what is in them."""
        for name, inode in self.names.get(self.root, {}).items():
            yield Path(name), inode
            yield from ((name / path, inner) for path, inner in replace(self, root=inode).files())

    def copy_to(self, folder: Path) -> Path:
        """Write the files into a new folder."""
        folder.mkdir(parents=True)
        for path, inode in self.files():
            if inode.is_folder:
                (folder / path).mkdir()
            else:
                (folder / path).write_bytes(self.contents.get(inode, b""))
        return folder


class Recording:
    """The operations on the files below a folder.

    The present files are on the disk, or they are what a killed process has left after the operations `log`.
    """

    def __init__(self, folder: Path, root: Inode | None = None, log: Sequence[Operation] = ()) -> None:
        self.folder = folder
        self.disk = Disk(root or Inode(is_folder=True))
        self.log: list[Operation] = []
        self.last_event: int | None = None
        """The number of operations before the last event of the run, or before its interruption."""
        self.promises: list[tuple[int, float]] = []
        """After how many operations a run must be resumed at which number of local trainings or later."""
        for operation in log:
            self._append(operation)
        self._inodes = {(folder / path).stat().st_ino: inode for path, inode in self.disk.files()}
        self.observe()
        if not log:
            self.log += [Sync(inode) for inode in self._inodes.values()]
        self.begin = len(self.log)

    def observe(self) -> None:
        """Append what has changed since the last call: at most one change of names, and writes."""
        inodes = {self.folder.stat().st_ino: self.disk.root}
        names: dict[Inode, dict[str, Inode]] = {self.disk.root: {}}
        contents: dict[Inode, bytes] = {}
        for path in sorted(self.folder.rglob("*")):
            number, is_folder = path.stat().st_ino, path.is_dir()
            inode = inodes[number] = self._inodes.get(number) or Inode(is_folder)
            names[inodes[path.parent.stat().st_ino]][path.name] = inode
            if is_folder:
                names[inode] = {}
            else:
                contents[inode] = path.read_bytes()
        self._inodes = inodes
        for folder, new in names.items():
            old = self.disk.names.get(folder, {})
            changed = {name: new.get(name) for name in old | new if old.get(name) is not new.get(name)}
            if changed:
                self._append(Names(folder, changed))
        for file, content in contents.items():
            before = self.disk.contents.get(file, b"")
            same = min(len(before), len(content))
            if before[:same] != content[:same]:
                same = 0
            if len(before) > same:
                self._append(Truncate(file, same))
            if len(content) > same:
                self._append(Write(file, same, content[same:]))

    def synced(self, descriptor: int) -> None:
        """Append an fsync that has returned."""
        inode = self._inodes.get(os.fstat(descriptor).st_ino)
        if inode is not None:
            self.log.append(Sync(inode))

    def promise(self, resumed_at: float) -> None:
        """Note that from now on, the run must be resumed at this number of local trainings or later."""
        self.observe()
        self.promises.append((len(self.log), resumed_at))

    def promised(self, moment: int) -> float:
        """Return where a run must be resumed at the earliest after a number of operations."""
        return max((resumed_at for place, resumed_at in self.promises if place <= moment), default=REFUSED)

    def after_kill(self, moment: int, folder: Path) -> Recording:
        """Return a new folder as a process leaves it that is killed after a number of operations."""
        disk = Disk(self.disk.root)
        for operation in self.log[:moment]:
            disk.apply(operation)
        killed = Recording(disk.copy_to(folder), disk.root, self.log[:moment])
        killed.promises = [promise for promise in self.promises if promise[0] <= moment]
        return killed

    def after_power_failure(self, moment: int, folder: Path, random: Random) -> Recording:
        """Return a new folder as it may be after a power failure after a number of operations."""
        disk, log = Disk(self.disk.root), self.log[:moment]
        synced = {operation.inode: k for k, operation in enumerate(log) if isinstance(operation, Sync)}
        share = random.choice((0.0, 0.5, 0.9))
        for k, operation in enumerate(log):
            if k < synced.get(operation.inode, 0) or random.random() < share:
                disk.apply(operation)
            elif isinstance(operation, Write):
                disk.apply(replace(operation, data=_torn(operation.data, random)))
        return Recording(disk.copy_to(folder))

    def states_after_last_event(self, copies: Path, random: Random) -> list[Path]:
        """Return folders as after a kill and after a power failure, for each change since the last event."""
        assert self.last_event is not None
        later = range(self.last_event + 1, len(self.log) + 1)
        moments = [self.last_event, *(k for k in later if not isinstance(self.log[k - 1], Sync))]
        killed = [self.after_kill(moment, copies / f"killed-{moment}") for moment in moments]
        off = [self.after_power_failure(moment, copies / f"off-{moment}", random) for moment in moments]
        return [state.folder for state in (*killed, *off)]

    def _append(self, operation: Operation) -> None:
        self.log.append(operation)
        self.disk.apply(operation)


def _torn(data: bytes, random: Random) -> bytes:
    """Return data that ends at any byte, or in which a block has not been written yet."""
    begin, end = sorted(random.choices(range(len(data) + 1), k=2))
    return data[:begin] if random.random() < 0.5 else data[:begin] + bytes(end - begin) + data[end:]


@contextmanager
def recorded(recording: Recording) -> Iterator[Recording]:
    """Record what a run does to the files below a folder."""

    def before_operation(*_: Any) -> None:
        recording.observe()

    def after_fsync(_: object, descriptor: int) -> None:
        recording.synced(descriptor)

    def after_write_scenario(*_: Any) -> None:
        recording.promise(FROM_THE_BEGINNING)

    def after_save(_: object, writer: CheckpointWriter, simulation: Simulation) -> None:
        recording.promise(simulation.num_trained)

    def after_finish(_: object, simulation: Simulation) -> None:
        if simulation.status is not None and simulation.status.is_complete:
            recording.promise(COMPLETE)

    def before_last_event(*_: Any) -> None:
        recording.observe()
        recording.last_event = len(recording.log)

    with ExitStack() as stack:

        def wrap(owner: Any, name: str, **actions: Callable[..., None]) -> None:
            stack.enter_context(patch.object(owner, name, _wrapped(getattr(owner, name), **actions)))

        for name in OPERATIONS:
            wrap(os, name, before=before_operation)
        wrap(os, "fsync", after=after_fsync)
        wrap(Simulation, "end", before=before_last_event)
        wrap(Simulation, "finish", after=after_finish)
        wrap(CheckpointWriter, "save", after=after_save)
        wrap(RunFolder, "write_scenario", after=after_write_scenario)
        stack.enter_context(patch.object(run_folder, "FLUSH_EVERY_S", 0.0))
        yield recording
    recording.observe()


def _wrapped(
    function: Callable[..., Any],
    before: Callable[..., None] = lambda *_: None,
    after: Callable[..., None] = lambda *_: None,
) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        before(*arguments)
        result = function(*arguments, **options)
        after(result, *arguments)
        return result

    return wrapper


def disturbances(
    start: Callable[[Path], object],
    build: Callable[[Scenario], Experiment],
    expected: dict[str, Any],
    folder: Path,
    num_states: int,
    random: Random,
) -> Iterator[str]:
    """Resume a run after kills and power failures at random moments; yield a sentence for each error.

    `start` executes the run in a new folder; `expected` are the results of an undisturbed run. Resumed runs
    are disturbed, too.
    """
    (folder / "0").mkdir(parents=True)
    with recorded(Recording(folder / "0")) as first:
        start(folder / "0" / RUNS)
    latest = first
    for number in range(1, num_states + 1):
        source = random.choice((first, latest))
        moment = random.randint(source.begin, len(source.log))
        promised = source.promised(moment)
        is_killed = random.random() < SHARE_OF_KILLS
        if is_killed:
            latest = source.after_kill(moment, folder / str(number))
        else:
            latest = source.after_power_failure(moment, folder / str(number), random)
        with recorded(latest):
            try:
                resumed_at, different = _resumed(latest.folder, build, expected)
            except Exception as error:
                resumed_at, different = promised, [f"{type(error).__name__}: {error}"]
        if resumed_at < promised:
            different = [f"resumed at {resumed_at} local trainings, not at {promised} or later"]
        if different:
            latest = first
            what = "kill" if is_killed else "power failure"
            moments = _description(source, moment)
            yield f"{folder / str(number)}, {what} after {moments}: {', '.join(different)}"
        elif not is_killed:  # what was read is on the disk
            latest.promises.append((latest.begin, resumed_at))


def _resumed(
    parent: Path, build: Callable[[Scenario], Experiment], expected: dict[str, Any]
) -> tuple[float, list[str]]:
    """Resume a run; return where it was resumed, and its files that differ from the expected ones."""
    run = next(parent.glob(f"{RUNS}/*"), None)
    if run is None:
        return REFUSED, []
    start = FirstUpdate()
    if RunReader(run).is_complete():
        start.num_trained = COMPLETE
        remove_checkpoints(run)
    else:
        try:
            resume(run, start, build(scenario_of(run)))
        except ScenarioError as error:
            if str(error) == f"{run}: is not a run folder: it has no scenario.toml":
                return REFUSED, []
            raise
    found = results(run)
    return start.num_trained, [
        name for name in expected | found if expected.get(name, "missing") != found.get(name, "missing")
    ]


class FirstUpdate:
    """Progress callback that notes where a run is resumed."""

    num_trained: float = REFUSED

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        if self.num_trained == REFUSED:
            self.num_trained = rounds_done


def _description(recording: Recording, moment: int) -> str:
    """Return the last operations before a moment."""
    names = {
        inode: name
        for operation in recording.log
        if isinstance(operation, Names)
        for name, inode in operation.changed.items()
    }
    last = [
        f"{type(operation).__name__} {names.get(operation.inode, '.')}"
        for operation in recording.log[max(0, moment - 3) : moment]
    ]
    return f"operation {moment} of {len(recording.log)} ({', '.join(last)})"


def results(folder: Path) -> dict[str, Any]:
    """Return all files of a run except provenance.json, without wall-clock times."""
    files: dict[str, Any] = {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }
    del files["provenance.json"]
    files["summary.json"] = {**json.loads(files["summary.json"]), "wall": None}
    return files
