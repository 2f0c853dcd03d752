"""Taking up a run that was interrupted, killed or has crashed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rdpfl_sim.errors import Problem, RunError, ScenarioError, is_out_of_memory
from rdpfl_sim.execution.allocation import gc_paused
from rdpfl_sim.execution.determinism import deterministic_torch
from rdpfl_sim.records.checkpoint_file import Checkpoints
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.run_folder import CHECKPOINTS, SUMMARY, TRACEBACK, RunFolder
from rdpfl_sim.records.state_codec import CodecError, decoding
from rdpfl_sim.scenario.scenario import Scenario, reject_network_access
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.provenance import RESUMED_ELSEWHERE, changes, environment
from rdpfl_sim.simulation.simulation import Progress, Result, Simulation, failure_noted
from rdpfl_sim.simulation.snapshot import Snapshot

log = logging.getLogger(__name__)


def resume(
    folder: str | Path,
    progress: Progress | None = None,
    experiment: Experiment | None = None,
    *,
    allow_cluster: bool = False,
) -> Result:
    """Go on with the run in a folder, from its last checkpoint, to the result that it would have had.

    Without a usable checkpoint it starts again. `experiment`, if given, must be that of the folder's
    scenario. A complete run is refused, after the checkpoints are removed that it may have left.
    A scenario that names the address of a Ray cluster needs `allow_cluster`.
    """
    folder = Path(folder)
    scenario = scenario_of(folder) if experiment is None else experiment.scenario
    reject_network_access(scenario, allow_cluster)
    if experiment is None:
        experiment = Experiment(scenario)
    files = _opened(folder)
    try:
        if RunReader(folder).is_complete():  # asked when nobody else can complete it any more
            Checkpoints(folder / CHECKPOINTS).clear()
            raise _refusal(folder, "is already complete; there is nothing to resume")
        with deterministic_torch(experiment.scenario.execution.threads, experiment.device), gc_paused():
            snapshot, warnings = _last_state(files, experiment)
            for name in (SUMMARY, TRACEBACK):  # of the part before
                (folder / name).unlink(missing_ok=True)
            with _suspecting(folder, snapshot), failure_noted(files, experiment.scenario):
                return Simulation(experiment, files, progress).run(snapshot, warnings)
    except CodecError as error:
        raise _refusal(folder, f"has a checkpoint that this version cannot take up: {error}") from error
    finally:
        experiment.trainer.close()
        files.close()


def remove_checkpoints(folder: Path) -> bool:
    """Remove the checkpoints of a complete run that was killed before it could do so; False without any."""
    if not (folder / CHECKPOINTS).exists():
        return False
    with closing(_opened(folder)):
        Checkpoints(folder / CHECKPOINTS).clear()
    return True


def scenario_of(folder: Path) -> Scenario:
    """The scenario of a run; what has no scenario was no run."""
    if not (folder / "scenario.toml").is_file():
        raise _refusal(folder, "is not a run folder: it has no scenario.toml")
    return Scenario.of_run(folder)


@contextmanager
def _suspecting(folder: Path, snapshot: Snapshot | None) -> Iterator[None]:
    """Blame errors of a run that was resumed on its checkpoint, which may come from elsewhere."""
    try:
        yield
    except (ScenarioError, CodecError):
        raise
    except (
        *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    ) as error:
        if snapshot is None or is_out_of_memory(error):
            raise
        what = f"{type(error).__name__}: {error}"
        message = f"{folder}: the run cannot go on from its checkpoint ({what}); see {folder / TRACEBACK}"
        raise RunError(message) from error


def _opened(folder: Path) -> RunFolder:
    try:
        files = RunFolder(folder)
    except BlockingIOError:
        raise _refusal(folder, "is still running in another process") from None
    except OSError as error:
        raise _refusal(Path(error.filename or folder), f"cannot be written: {error.strerror}") from error
    return files


def _last_state(files: RunFolder, experiment: Experiment) -> tuple[Snapshot | None, list[str]]:
    """Where the run is to be taken up, and warnings about that; its records end there."""

    def can_be_used(state: dict[str, Any]) -> bool:
        if state["about"]["scenario"] != files.scenario:
            message = "has changed since the run began; put it back, or run it as a scenario of its own"
            raise ScenarioError([Problem("scenario.toml", message)])
        return files.truncate(state["about"]["records"])

    with decoding():
        found = Checkpoints(files.path / CHECKPOINTS).newest(can_be_used, experiment.device)
        if found is None:
            log.warning("there is no checkpoint: the run starts again from its beginning")
            files.start_afresh()
            return None, []
        state, tensors = found
        if "environment" not in state["about"]:
            raise CodecError("it was written by an older version")
        differences = changes(state["about"]["environment"], environment(experiment.trainer.device_kind))
        snapshot = Snapshot(state["run"], tensors)
    warnings = [f"{RESUMED_ELSEWHERE}: {'; '.join(differences)}"] if differences else []
    for warning in warnings:
        log.warning(warning)
    return snapshot, warnings


def _refusal(folder: Path, message: str) -> ScenarioError:
    return ScenarioError([Problem(str(folder), message)])
