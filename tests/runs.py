"""Whole runs in memory: quick ones, and runs that are interrupted and resumed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import tomli_w

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.errors import RunError
from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.records.metrics import METRICS
from rdpfl_sim.simulation import checkpoint
from rdpfl_sim.simulation.checkpoint_file import packed, unpacked
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.resume import restore
from rdpfl_sim.simulation.simulation import Result, Simulation
from tests.support import odd_payloads

MAX_EVENTS = 200_000
Mail = Sequence[tuple[int, int, int, int]]
"""Recipient, sender, stamp and kind of messages."""


class FolderInMemory:
    """Accepts the content of a run folder and checks that it can be encoded, without writing to a disk."""

    path = Path("nowhere")

    def __init__(self) -> None:
        self.events = BytesIO()
        self.metrics: list[dict[str, Any]] = []
        self.models = b""

    def write_scenario(self, scenario: dict[str, Any]) -> None:
        tomli_w.dumps(scenario)

    def write_json(self, name: str, value: Any) -> None:
        orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)

    def write_models(self, blocks: Iterable[bytes | memoryview]) -> None:
        self.models = b"".join(blocks)

    def write_metrics(self, row: dict[str, Any]) -> None:
        assert row.keys() == set(METRICS)
        self.metrics.append(row)

    def read_metrics(self) -> list[dict[str, Any]]:
        return self.metrics

    def flush(self) -> None:
        pass

    def sync(self) -> list[int]:
        return [len(self.events.getvalue()), 0]


@dataclass(frozen=True)
class Lived:
    """A run that has ended."""

    simulation: Simulation
    result: Result
    folder: FolderInMemory
    num_events: int

    @property
    def traces(self) -> tuple[bytes, str, str, bytes]:
        """All results of the run except wall-clock times, as text, so that NaN equals NaN."""
        summary = {k: value for k, value in self.result.summary.items() if k != "wall"}
        return self.folder.events.getvalue(), repr(self.folder.metrics), repr(summary), self.folder.models


def lived(
    experiment: Experiment,
    leave_after: Callable[[int], bool] = lambda event: False,
    mail: Mail = (),
    folder: Any = None,
    prepare: Callable[[Simulation], object] = lambda simulation: None,
) -> Lived:
    """Execute a run with a limited number of events and with malformed messages in flight at its start.

    `prepare` is called with a simulation before its first event.

    After each event that `leave_after` selects, the run is encoded as a checkpoint. A new simulation resumes
    it from the scenario and this checkpoint.
    """
    folder = FolderInMemory() if folder is None else folder
    simulation = _simulation(experiment, folder)
    num_events = 0
    with deterministic_torch(1):
        prepare(simulation)
        simulation.begin()
        post(simulation, mail)
        while simulation.status is None:
            simulation.kernel.step()
            num_events += 1
            assert num_events < MAX_EVENTS, f"more than {MAX_EVENTS} events: the run hangs"
            if simulation.status is None and leave_after(num_events):
                content = bytearray().join(packed(*checkpoint.take_snapshot(simulation)))
                simulation = _simulation(experiment, folder)
                restore(simulation, checkpoint.Snapshot(*unpacked(content, experiment.device)))
                simulation.begin()
        return Lived(simulation, simulation.finish(), folder, num_events)


def post(simulation: Simulation, mail: Mail) -> None:
    """Make neighbours send malformed messages before any other event."""
    for recipient, sender, stamp, kind in mail:
        client = simulation.clients[recipient % len(simulation.clients)]
        payloads = list(odd_payloads(client.mailbox.form).values())
        if client.neighbours and simulation.experiment.method.exchanges:
            neighbour = client.neighbours[sender % len(client.neighbours)]
            simulation.network.send(neighbour, 1, payloads[kind % len(payloads)], [client.id], stamp=stamp)


def _simulation(experiment: Experiment, folder: Any) -> Simulation:
    simulation = Simulation(experiment, folder, None)
    simulation.checkpoint_writer = None  # there is no disk
    simulation.world.changes = _at_most(MAX_EVENTS, simulation.world.changes)
    return simulation


def _at_most(num: int, items: Iterable[Any]) -> Iterator[Any]:
    for position, item in enumerate(items):
        assert position < num, f"more than {num} changes: the run hangs"
        yield item


class At:
    """Progress callback that acts after a number of local trainings."""

    def __init__(self, num_trained: int, action: Callable[[], None]) -> None:
        self.num_trained = num_trained
        self.action = action
        self.seen: list[tuple[int, float | None]] = []

    def update(self, rounds_done: int, time_s: float, accuracy: float | None, messages: int) -> None:
        self.seen.append((rounds_done, accuracy))
        if rounds_done == self.num_trained:
            self.num_trained = -1
            self.action()


def interrupt() -> None:
    signal.raise_signal(signal.SIGTERM)


def left(scenario: Scenario, parent: Path, num_trained: int, action: Callable[[], None]) -> Path:
    """Return the folder of an unfinished run."""
    with suppress(RunError):
        simulate(scenario, parent, At(num_trained, action))
    [folder] = parent.iterdir()
    return folder
