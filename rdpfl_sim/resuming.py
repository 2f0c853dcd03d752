"""Taking up a run that was interrupted, killed or has crashed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from rdpfl_sim.blueprint import Blueprint
from rdpfl_sim.checkpointing import environment
from rdpfl_sim.errors import Problem, ScenarioError
from rdpfl_sim.execution.arithmetic import repeatable
from rdpfl_sim.execution.memory import seldom_collected
from rdpfl_sim.records.checkpoints import Checkpoints
from rdpfl_sim.records.codec import CodecError
from rdpfl_sim.records.folder import RunFolder, is_complete
from rdpfl_sim.scenario import Scenario
from rdpfl_sim.simulation import Progress, Result, Simulation, failure_noted
from rdpfl_sim.snapshot import Snapshot

log = logging.getLogger(__name__)


def resume(
    folder: str | Path, progress: Progress | None = None, blueprint: Blueprint | None = None
) -> Result:
    """Go on with the run in a folder, from its last checkpoint, to the result that it would have had.

    Without a checkpoint that can be used it starts again. `blueprint`, if somebody has it already, is that of
    the folder's scenario.
    """
    folder = Path(folder)
    if blueprint is None:
        blueprint = Blueprint(scenario_of(folder))
    files = _opened(folder)
    try:
        with repeatable(blueprint.scenario.execution.threads), seldom_collected():
            snapshot = _last_state(files, blueprint)
            (folder / "summary.json").unlink(missing_ok=True)  # of the part before
            with failure_noted(files):
                return Simulation(blueprint, files, progress).run(snapshot)
    except CodecError as error:
        raise _refusal(folder, f"has a checkpoint that this version cannot take up: {error}") from error
    finally:
        blueprint.trainer.close()
        files.close()


def scenario_of(folder: Path) -> Scenario:
    """The scenario of a run; what has no scenario was no run."""
    if not (folder / "scenario.toml").is_file():
        raise _refusal(folder, "is not a run folder: it has no scenario.toml")
    return Scenario.load(folder / "scenario.toml")


def _opened(folder: Path) -> RunFolder:
    try:
        files = RunFolder(folder)
    except BlockingIOError:
        raise _refusal(folder, "is still running in another process") from None
    except OSError as error:
        raise _refusal(folder, f"cannot be written: {error.strerror}") from error
    if is_complete(folder):  # asked when nobody else can complete it any more
        files.close()
        raise _refusal(folder, "has come to its end; there is nothing to resume")
    return files


def _last_state(files: RunFolder, blueprint: Blueprint) -> Snapshot | None:
    """Where the run is to be taken up; its records end there."""

    def can_be_used(state: dict[str, Any]) -> bool:
        if state["about"]["scenario"] != files.scenario:
            message = "has changed since the run began; put it back, or run it as a scenario of its own"
            raise ScenarioError([Problem("scenario.toml", message)])
        return files.cut_off(state["about"]["records"])

    found = Checkpoints(files.path / "checkpoints").newest(can_be_used, blueprint.device)
    if found is None:
        log.warning("there is no checkpoint: the run starts again from its beginning")
        files.start_afresh()
        return None
    state, tensors = found
    _warn_of_differences(state["about"])
    return Snapshot(state["run"], tensors)


def _warn_of_differences(about: dict[str, Any]) -> None:
    for name, now in environment().items():
        if about[name] != now:
            log.warning("%s was %s and is %s now: the digest may differ", name, about[name], now)


def _refusal(folder: Path, message: str) -> ScenarioError:
    return ScenarioError([Problem(str(folder), message)])
