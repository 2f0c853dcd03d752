"""Start runs and sweeps in separate processes, kill them with SIGKILL, and continue them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from matplotlib.figure import Figure

from rdpfl_sim import Scenario, resume, simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.records.files import SUMMARY
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.reports import figures
from rdpfl_sim.simulation import checkpoint_file as checkpoints
from rdpfl_sim.simulation.checkpoint_file import Checkpoints, packed
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.simulation.simulation import Simulation

TOKEN = "RDPFL_SIM_TEST"
"""Environment variable that identifies all processes of a command, because they inherit it."""

TIMEOUT_S = 240.0  # a busy machine takes minutes to start Ray


class Command:
    """The command rdpfl-sim in a separate process."""

    def __init__(self, *words: str | Path) -> None:
        self.token = uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rdpfl_sim", *map(str, words)],
            env={**os.environ, TOKEN: self.token},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def processes(self, title: str = "") -> list[int]:
        """Return the ids of the command's processes, including descendants, with this text in their title."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environment, words = (path / "environ").read_bytes(), (path / "cmdline").read_text()
            except OSError:  # it has ended, or belongs to another user
                continue
            if f"{TOKEN}={self.token}".encode() in environment and title in words:
                found.append(int(path.name))
        return found

    def kill(self) -> None:
        """Kill the main process and wait until all others have ended."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait until the command and all its processes have ended; return its exit code."""
        try:
            exit_code = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        # Two agents of Ray survive a killed main process for up to a minute.
        wait_until(
            lambda: not {*self.processes()}.difference(self.processes("Agent")),
            lambda: f"processes are still running: {self.processes()}",
        )
        return exit_code


def ray_processes(title: str) -> list[int]:
    """Return the ids of processes with this title in a Ray cluster that this process has started."""
    parents, titles = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            titles[int(path.name)] = (path / "cmdline").read_text()
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    raylets = {process for process, parent in parents.items() if parent == os.getpid()}
    return [p for p, own in titles.items() if parents[p] in raylets and own.startswith(f"ray::{title}")]


def wait_until(condition: Callable[[], Any], message: Callable[[], str]) -> None:
    """Wait until a condition holds; fail with the message after a timeout."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, message()
        time.sleep(0.01)


def context() -> Any:
    """Return a context whose server has imported everything, so that new processes start quickly."""
    forkserver: Any = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["tests.killing"])
    return forkserver


def command_or_resume(file: str, parent: str, moment: int) -> None:
    """Run or resume a scenario from the command line; the process kills itself after writing the summary.

    Moment 0: immediately; 1: after removing the checkpoints; 3: after the first figure; 2 and 4: before a
    figure is renamed.
    """
    countdown = iter(range(moment))

    def count() -> None:
        if next(countdown, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    write_json = RunFolder.write_json

    def write_json_and_count(folder: RunFolder, name: str, value: Any) -> None:
        write_json(folder, name, value)
        if name == SUMMARY:
            count()

    RunFolder.write_json = write_json_and_count  # type: ignore[method-assign]
    for owner, name in ((Checkpoints, "clear"), (Figure, "savefig"), (figures, "save")):
        setattr(owner, name, _followed_by(count, getattr(owner, name)))
    folders = list(Path(parent).glob("*"))
    main(["resume", str(folders[0]), "-q"] if folders else ["run", file, "--output", parent, "-q"])


def _followed_by(action: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    def both(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        action()
        return result

    return both


def run_until_killed_after_summary(file: Path, parent: Path, moment: int) -> None:
    """Run a scenario in a process that is killed between its summary and its last figure."""
    process = context().Process(target=command_or_resume, args=(str(file), str(parent), moment))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def run_or_resume(raw: dict[str, Any], parent: str, kill_after: tuple[str, int] | None) -> None:
    """Resume the run in a folder, or start it; the process kills itself if `kill_after` is given.

    `kill_after` is a number of "events", or of "blocks" of all checkpoints written.
    """
    if kill_after is not None:
        kind, number = kill_after
        countdown = iter(range(number - 1))

        def count() -> None:
            if next(countdown, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        if kind == "events":
            _after_every_event(count)
        else:
            _after_every_block(count)
    folders = list(Path(parent).glob("*"))
    if folders and (folders[0] / "scenario.toml").exists():
        resume(folders[0])
    else:
        simulate(Scenario.from_dict(raw), parent)


def run_until_killed(raw: dict[str, Any], parent: Path, kill_after: tuple[str, int]) -> bool:
    """Run until killed; return False if the run completed first."""
    process = context().Process(target=run_or_resume, args=(raw, str(parent), kill_after))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "the run failed"
    return process.exitcode != 0


def run_for(raw: dict[str, Any], parent: Path, seconds: float) -> bool:
    """Kill the run some seconds after its folder appears; return False if it completed first."""
    process = context().Process(target=run_or_resume, args=(raw, str(parent), None))
    process.start()
    while process.is_alive() and not list(parent.glob("*/scenario.toml")):
        time.sleep(0.001)
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "the run failed"
    return process.exitcode != 0


def run_until_terminated(raw: dict[str, Any], parent: Path, seconds: float) -> Path:
    """Send SIGTERM some seconds after the run folder appears; return the folder when the run has ended."""
    process = context().Process(target=run_or_resume, args=(raw, str(parent), None))
    process.start()
    wait_until(
        lambda: list(parent.glob("*/scenario.toml")) or not process.is_alive(), lambda: "no run folder"
    )
    process.join(seconds)
    process.terminate()
    process.join()
    assert process.exitcode in (0, -signal.SIGTERM), "the run failed"
    [folder] = parent.iterdir()
    return folder


def run_to_the_end(raw: dict[str, Any], parent: Path) -> Path:
    """Run or resume until the run is complete; return its folder."""
    folders = list(parent.glob("*"))
    if not (folders and RunReader(folders[0]).is_complete()):
        run_or_resume(raw, str(parent), None)
    [folder] = parent.glob("*")
    return folder


def _after_every_event(action: Any) -> None:
    begin = Simulation.begin

    def begin_with_action(simulation: Simulation) -> None:
        begin(simulation)
        kernel, run_until_paused = simulation.kernel, simulation.kernel.run_until_paused

        def step_and_act() -> None:
            kernel.pause()
            run_until_paused()
            action()

        kernel.run_until_paused = step_and_act  # type: ignore[method-assign]

    Simulation.begin = begin_with_action  # type: ignore[method-assign]


def _after_every_block(action: Any) -> None:
    def packed_with_action(*content: Any) -> Iterator[bytes | memoryview]:
        for block in packed(*content):
            yield block
            action()

    checkpoints.packed = packed_with_action
