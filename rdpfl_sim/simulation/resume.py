"""Resume a run that was interrupted or killed, or that crashed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from typing import Any

from rdpfl_sim.errors import Problem, RunError, ScenarioError, is_out_of_memory
from rdpfl_sim.execution.devices import deterministic_torch, gc_paused
from rdpfl_sim.files import JsonObject
from rdpfl_sim.records.files import CHECKPOINTS, SUMMARY, TRACEBACK
from rdpfl_sim.records.reader import RunReader
from rdpfl_sim.records.schema import check_schema
from rdpfl_sim.scenario.scenario import Scenario, reject_network_access
from rdpfl_sim.simulation.checkpoint import Snapshot, stateful_components, value_classes
from rdpfl_sim.simulation.checkpoint_file import Checkpoints, CodecError, Decoder, decoding
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.provenance import RESUMED_ELSEWHERE, changes, environment
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.simulation.signals import record_failure
from rdpfl_sim.simulation.simulation import Progress, Result, Simulation

PRIORITIES = range(10)
SHORTEST_RECORD = 40
"""Minimum size in bytes of a fault record in events.jsonl."""
MAX_CHANGES = 100_000_000
"""Maximum number of changes to the world without fault records. Skipping this many takes a minute or two."""

log = logging.getLogger(__name__)


def resume(
    folder: str | Path,
    progress: Progress | None = None,
    experiment: Experiment | None = None,
    *,
    allow_cluster: bool = False,
) -> Result:
    """Resume the run in a folder from its last checkpoint. The interruption does not affect the result.

    Without a usable checkpoint, the run starts from the beginning. `experiment`, if given, must be built
    from the scenario in the folder. For a complete run, remove leftover checkpoints and raise a
    `ScenarioError`. A scenario that names the address of a Ray cluster needs `allow_cluster`.
    """
    folder = Path(folder)
    check_schema(folder)
    scenario = scenario_of(folder) if experiment is None else experiment.scenario
    reject_network_access(scenario, allow_cluster)
    if experiment is None:
        experiment = Experiment(scenario)
    files = _open_folder(folder)
    try:
        if RunReader(folder).is_complete():  # checked while the folder is locked
            Checkpoints(folder / CHECKPOINTS).clear()
            raise _folder_error(folder, "is already complete; there is nothing to resume")
        with deterministic_torch(experiment.scenario.execution.threads, experiment.device), gc_paused():
            simulation = Simulation(experiment, files, progress)
            with closing(simulation.executor):
                snapshot, warnings = _last_state(files, simulation)
                for name in (SUMMARY, TRACEBACK):  # from the previous session
                    (folder / name).unlink(missing_ok=True)
                with _blame_checkpoint(folder, snapshot), record_failure(files, experiment.scenario):
                    if snapshot is not None:
                        restore(simulation, snapshot)
                    return simulation.run(warnings)
    except CodecError as error:
        raise _folder_error(folder, f"has a checkpoint that this version cannot resume: {error}") from error
    finally:
        files.close()


def remove_checkpoints(folder: Path) -> bool:
    """Remove leftover checkpoints of a complete run, and return whether there were any."""
    if not (folder / CHECKPOINTS).exists():
        return False
    with closing(_open_folder(folder)):
        Checkpoints(folder / CHECKPOINTS).clear()
    return True


def scenario_of(folder: Path) -> Scenario:
    """Return the scenario of a run folder."""
    if not (folder / "scenario.toml").is_file():
        raise _folder_error(folder, "is not a run folder: it has no scenario.toml")
    return Scenario.of_run(folder)


@contextmanager
def _blame_checkpoint(folder: Path, snapshot: Snapshot | None) -> Iterator[None]:
    """Report errors of a resumed run as errors of its checkpoint, which may be damaged or forged."""
    try:
        yield
    except (ScenarioError, CodecError):
        raise
    except (
        *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    ) as error:
        if snapshot is None or is_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {error}"
        message = (
            f"{folder}: the run cannot continue from its checkpoint ({reason}); see {folder / TRACEBACK}"
        )
        raise RunError(message) from error


def restore(simulation: Simulation, snapshot: Snapshot) -> None:
    """Restore a snapshot into a simulation that has not begun yet.

    Raises a `CodecError` if the snapshot belongs to a different scenario.
    """
    state, world, kernel = snapshot.state, simulation.world, simulation.kernel
    with decoding():
        for kind, *ends in map(str.split, state["parts"]):
            if kind == "link":
                _ = simulation.network.links[int(ends[0])][int(ends[1])]  # links are created on first use
        components = stateful_components(simulation)
        if components.keys() != state["parts"].keys():
            raise CodecError(f"different components: {sorted(components.keys() ^ state['parts'].keys())}")
        decoder = Decoder(components, value_classes(simulation), state["values"], snapshot.tensors)
        for name, component in components.items():
            decoder.restore(component, state["parts"][name])
        _check_numbers(simulation, state["waiting"])
        world.resume(state["waiting"])
        for time_s, priority, entry in state["queue"]:
            if not time_s >= kernel.now or priority not in PRIORITIES:
                found = f"an event at {time_s} s with priority {priority}"
                raise CodecError(f"its queue has {found}; the time is {kernel.now} s")
            if entry[0] != "client":
                event = decoder.decode(entry)
                if not callable(event.callback):
                    raise CodecError(f"its queue contains {entry}, which cannot be called")
                kernel.call_at(event, time_s, priority)
            elif entry[1] in world.processes:
                kernel.trigger_at(world.processes[entry[1]].target, time_s, priority)
            else:
                world.start_client(entry[1])
    simulation.is_restored = True


def _check_numbers(simulation: Simulation, waiting: list[Any]) -> None:
    """Reject numbers that would corrupt the run or prevent it from ending."""
    if not 0 <= simulation.kernel.now < inf:
        raise CodecError(f"its time is {simulation.kernel.now} s")
    for client in simulation.clients:
        round_ = client.state.round
        if type(round_) is not int or not 0 <= round_ <= simulation.scenario.rounds + 1:
            raise CodecError(f"client {client.id} is in round {round_!r}")
    if len(set(waiting)) < len(waiting) or not set(waiting) <= set(range(len(simulation.clients))):
        raise CodecError(f"its list of waiting clients is invalid: {waiting}")
    num_changes, files = simulation.world.num_changes, simulation.files
    recorded = files is not None and simulation.scenario.output.events
    max_changes = files.sync()[0] // SHORTEST_RECORD if files is not None and recorded else MAX_CHANGES
    if type(num_changes) is not int or not 0 <= num_changes <= max_changes:
        raise CodecError(
            f"its number of changes to the world is {num_changes!r}; the maximum is {max_changes:,}"
        )


def _open_folder(folder: Path) -> RunFolder:
    try:
        files = RunFolder(folder)
    except BlockingIOError:
        raise _folder_error(folder, "is still running in another process") from None
    except OSError as error:
        raise _folder_error(Path(error.filename or folder), f"cannot be written: {error.strerror}") from error
    return files


def _last_state(files: RunFolder, simulation: Simulation) -> tuple[Snapshot | None, list[str]]:
    """Return the last usable snapshot and warnings about it; truncate the records to its time."""

    def is_usable(state: JsonObject) -> bool:
        if state["about"]["scenario"] != files.scenario:
            message = "has changed since the run started; restore it, or start a new run with it"
            raise ScenarioError([Problem("scenario.toml", message)])
        return files.truncate(state["about"]["records"])

    with decoding():
        found = Checkpoints(files.path / CHECKPOINTS).newest(is_usable, simulation.experiment.device)
        if found is None:
            log.warning("there is no usable checkpoint: the run starts again from the beginning")
            files.start_afresh()
            return None, []
        state, tensors = found
        here = environment(simulation.executor.device_kind, simulation.experiment.arithmetic)
        differences = changes(state["about"]["environment"], here)
        snapshot = Snapshot(state["run"], tensors)
    warnings = [f"{RESUMED_ELSEWHERE}: {'; '.join(differences)}"] if differences else []
    for warning in warnings:
        log.warning(warning)
    return snapshot, warnings


def _folder_error(folder: Path, message: str) -> ScenarioError:
    return ScenarioError([Problem(str(folder), message)])
