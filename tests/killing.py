"""Runs in processes of their own that are killed without warning (SIGKILL), and resumed, and killed again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rdpfl_sim import Scenario, resume, simulate
from rdpfl_sim.records import checkpoints
from rdpfl_sim.records.checkpoints import packed
from rdpfl_sim.records.folder import is_complete
from rdpfl_sim.simulation import Simulation


def context() -> Any:
    """Where processes come from: one that has loaded everything, so that a new one is there at once."""
    made: Any = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.killing"])
    return made


def run_or_resume(raw: dict[str, Any], parent: str, kill_after: tuple[str, int] | None) -> None:
    """What a process does: go on with the run in a folder, or begin it, and perhaps be killed.

    It is killed after so many "events", or while it writes a checkpoint, after so many "blocks" of them all.
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


def killed(raw: dict[str, Any], parent: Path, kill_after: tuple[str, int]) -> bool:
    """Run until killed; whether it was, or had come to its end before."""
    process = context().Process(target=run_or_resume, args=(raw, str(parent), kill_after))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "the run has failed"
    return process.exitcode != 0


def killed_by_the_clock(raw: dict[str, Any], parent: Path, seconds: float) -> bool:
    """Run until killed from outside, so many seconds after there is a run folder."""
    process = context().Process(target=run_or_resume, args=(raw, str(parent), None))
    process.start()
    while process.is_alive() and not list(parent.glob("*/scenario.toml")):
        time.sleep(0.001)
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "the run has failed"
    return process.exitcode != 0


def finished(raw: dict[str, Any], parent: Path) -> Path:
    """Run or resume to the end; the run folder."""
    folders = list(parent.glob("*"))
    if not (folders and is_complete(folders[0])):
        run_or_resume(raw, str(parent), None)
    [folder] = parent.glob("*")
    return folder


def _after_every_event(action: Any) -> None:
    begin = Simulation.begin

    def begin_with_action(simulation: Simulation, *arguments: Any) -> None:
        begin(simulation, *arguments)
        kernel, run_on = simulation.kernel, simulation.kernel.run_on

        def step_and_act() -> None:
            kernel.pause()
            run_on()
            action()

        kernel.run_on = step_and_act  # type: ignore[method-assign]

    Simulation.begin = begin_with_action  # type: ignore[method-assign]


def _after_every_block(action: Any) -> None:
    def packed_with_action(*content: Any) -> Iterator[bytes | memoryview]:
        for block in packed(*content):
            yield block
            action()

    checkpoints.packed = packed_with_action
