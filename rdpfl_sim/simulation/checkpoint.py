"""Write checkpoints so that an interrupted run can be resumed."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from simpy import Event, Process
from simpy.events import Initialize
from torch import Tensor

from rdpfl_sim.files import JsonObject
from rdpfl_sim.methods.base import Payload
from rdpfl_sim.methods.batching import Updated
from rdpfl_sim.records.files import CHECKPOINTS
from rdpfl_sim.scenario.sections import CheckpointSection
from rdpfl_sim.simulation.checkpoint_file import Checkpoints, CodecError, Encoder, Plain
from rdpfl_sim.simulation.evaluation import Candidate
from rdpfl_sim.simulation.provenance import environment
from rdpfl_sim.simulation.run_folder import RunFolder
from rdpfl_sim.simulation.telemetry import Histogram, RoundStats, SenderStats
from rdpfl_sim.simulation.theory import Trajectory
from rdpfl_sim.world.adversary.adversary import DelayedMessage, Observations
from rdpfl_sim.world.adversary.timing import ScheduledMessage
from rdpfl_sim.world.client import TrainedModel
from rdpfl_sim.world.faults.fault import End, Start, fault_classes
from rdpfl_sim.world.jobs import FinishedJob, JobResult
from rdpfl_sim.world.kernel import Call, Kernel
from rdpfl_sim.world.mailbox import SenderQueue
from rdpfl_sim.world.network.bandwidth import Departure, Transfer
from rdpfl_sim.world.network.message import Broadcast, Message
from rdpfl_sim.world.network.transport import Delivery
from rdpfl_sim.world.observer import UsedMessage

if TYPE_CHECKING:
    from rdpfl_sim.simulation.simulation import Simulation

MIN_PAUSE_FACTOR = 50
"""Minimum time between two timed checkpoints, as a multiple of the time to write a checkpoint."""

log = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes checkpoints into the run folder at intervals of rounds or minutes."""

    def __init__(
        self,
        section: CheckpointSection,
        num_clients: int,
        files: RunFolder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files = files
        self.checkpoints = Checkpoints(files.path / CHECKPOINTS)
        self.every_trained = None if section.every_rounds is None else section.every_rounds * num_clients
        self.every_s = 60.0 * section.every_minutes
        self.clock = clock
        self.due_s = clock() + self.every_s

    def is_due(self, num_trained: int) -> bool:
        """Return whether a checkpoint is due. `num_trained` counts the local training of all clients."""
        by_rounds = self.every_trained is not None and num_trained % self.every_trained == 0
        return by_rounds or self.clock() >= self.due_s

    def save(self, simulation: Simulation) -> None:
        """Write a checkpoint. If it cannot be written, log a warning and continue the run."""
        started_s = self.clock()
        try:
            state, tensors = take_snapshot(simulation)
            about = {
                "environment": environment(simulation.executor.device_kind, simulation.experiment.arithmetic),
                "scenario": self.files.scenario,
                "records": self.files.sync(),
            }
            self.checkpoints.save({"about": about, "run": state}, tensors)
        except (OSError, CodecError) as error:
            log.warning("cannot write a checkpoint; the run continues without it: %s", error)
        self.due_s = self.clock() + max(self.every_s, MIN_PAUSE_FACTOR * (self.clock() - started_s))

    def clear(self) -> None:
        """Remove all checkpoints of a complete run."""
        self.checkpoints.clear()


VALUES: tuple[type, ...] = (
    *(Message, Broadcast, Payload, SenderQueue, Delivery, Departure, Transfer, Call, UsedMessage),
    *(DelayedMessage, ScheduledMessage, Observations, Histogram, RoundStats, SenderStats),
    *(Trajectory, Candidate, TrainedModel, FinishedJob, JobResult, Updated, Start, End),
)
"""Classes of the values that a run creates, other than method states."""


class Snapshot(NamedTuple):
    """The complete state of a run: `state` is JSON-like and refers to tensors by their index."""

    state: dict[str, Plain]
    tensors: list[Tensor]


def take_snapshot(simulation: Simulation) -> Snapshot:
    """Return the state of a run. Pending updates are computed first; pending local training is not run."""
    components, pending_events = stateful_components(simulation), simulation.world.pending_events
    encoder = Encoder(components, value_classes(simulation))
    state = {
        "queue": list(_encode_queue(simulation.kernel, pending_events, encoder)),
        "waiting": [client for client, event in pending_events.items() if not isinstance(event, Initialize)],
        "parts": {name: encoder.part(component) for name, component in components.items()},
    }
    return Snapshot({**state, "values": encoder.values}, encoder.tensors)


def _encode_queue(kernel: Kernel, pending_events: dict[int, Event], encoder: Encoder) -> Iterator[Plain]:
    """Yield the queue's entries: time, priority, and either a call or the client whose process continues."""
    client_of = {id(event): client for client, event in pending_events.items()}
    for time_s, priority, event in kernel.queue:
        if id(event) in client_of:
            yield [time_s, priority, ["client", client_of[id(event)]]]
        elif not isinstance(event, Event):
            yield [time_s, priority, encoder.encode(event)]
        elif isinstance(event, Process) and not event.ok:
            raise cast(BaseException, event.value)  # a client has failed; SimPy would raise this next
        # All other SimPy events belong to processes that have ended and have no effect.


def stateful_components(simulation: Simulation) -> JsonObject:
    """Return all stateful components, by names that are the same in every simulation of a scenario."""
    network, clients = simulation.network, simulation.clients
    optional = {
        "transport": network.reliable,
        "bandwidth": network.bandwidth,
        "theory": simulation.evaluations.theory,
        "consensus": simulation.evaluations.consensus,
        "best": simulation.evaluations.best,
    }
    return {
        "simulation": simulation,
        "kernel": simulation.kernel,
        "time_limit": simulation.time_limit,
        "digest": simulation.recorder.digest,
        "telemetry": simulation.telemetry,
        "evaluations": simulation.evaluations,
        "world": simulation.world,
        "training_times": simulation.training_times,
        "network": network,
        "obstacles": network.obstacles,
        **{name: part for name, part in optional.items() if part is not None},
        **{f"adversary {place}": adversary for place, adversary in enumerate(simulation.adversaries)},
        **{f"client {client.id}": client for client in clients},
        **{f"timer {client.id}": client.timer for client in clients},
        **{f"state {client.id}": client.state for client in clients},
        **{f"mailbox {client.id}": client.mailbox for client in clients},
        **{
            f"link {link.sender} {link.recipient}": link for links in network.links for link in links.values()
        },
    }


def value_classes(simulation: Simulation) -> list[type]:
    """Return the value classes of the world, the faults and the method's modules."""
    return [
        *VALUES,
        *fault_classes(),
        *_data_classes("rdpfl_sim.methods."),
        *_data_classes(type(simulation.experiment.method).__module__),
    ]


def _data_classes(prefix: str) -> Iterator[type]:
    for name, module in list(sys.modules.items()):
        if name.startswith(prefix):
            for item in vars(module).values():
                if isinstance(item, type) and is_dataclass(item) and item.__module__ == name:
                    yield item
