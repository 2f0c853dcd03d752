"""The state of a whole run between two of its events, as plain data and tensors, and back.

SimPy's processes are generators, which nobody can write down. They are begun again instead: a client knows
its phase and whether it was waiting, and its process goes to the place at which it was. What SimPy's queue
holds is put back in its order, so that simultaneous events happen in the order that they would have had.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from simpy import Event, Process
from simpy.events import Initialize
from torch import Tensor

from rdpfl_sim.methods.deferred import Update
from rdpfl_sim.methods.payload import Payload
from rdpfl_sim.records.state_codec import CodecError, Decoder, Encoder, Plain, decoding
from rdpfl_sim.records.telemetry import Histogram, RoundStats, SenderStats
from rdpfl_sim.simulation.evaluation_schedule import Candidate
from rdpfl_sim.simulation.theory import Trajectory
from rdpfl_sim.world.adversary.adversary import DelayedMessage
from rdpfl_sim.world.adversary.observations import Observations
from rdpfl_sim.world.adversary.timing import ScheduledMessage
from rdpfl_sim.world.faults.fault import End, Start, fault_classes
from rdpfl_sim.world.kernel import Call, Kernel
from rdpfl_sim.world.mailbox import SenderQueue
from rdpfl_sim.world.network.bandwidth import Departure, Transfer
from rdpfl_sim.world.network.message import Broadcast, Message
from rdpfl_sim.world.network.transport import Delivery

if TYPE_CHECKING:
    from rdpfl_sim.simulation.simulation import Simulation

VALUES: tuple[type, ...] = (
    *(Message, Broadcast, Payload, SenderQueue, Delivery, Departure, Transfer, Call),
    *(
        DelayedMessage,
        ScheduledMessage,
        Observations,
        Histogram,
        RoundStats,
        SenderStats,
        Trajectory,
        Candidate,
        Update,
    ),
    *(Start, End),
)
"""What comes and goes in a run, besides the states of methods."""


PRIORITIES = range(10)
SHORTEST_RECORD = 40
"""Bytes in events.jsonl of a change of the world, at least."""
MOST_CHANGES = 100_000_000
"""Of a run that has no records of them: so many can be passed over in a minute or two."""


class Snapshot(NamedTuple):
    """All that a run needs to go on: `state` could be JSON, and refers to the tensors by number."""

    state: dict[str, Plain]
    tensors: list[Tensor]


def take(simulation: Simulation) -> Snapshot:
    """Write the run down. What was put off is computed first, and recorded."""
    simulation.updates.compute()
    parts, pending_events = _parts(simulation), simulation.world.pending_events
    encoder = Encoder(parts, _values(simulation))
    state = {
        "queue": list(_queued(simulation.kernel, pending_events, encoder)),
        "waiting": [client for client, event in pending_events.items() if not isinstance(event, Initialize)],
        "parts": {name: encoder.part(part) for name, part in parts.items()},
    }
    return Snapshot({**state, "values": encoder.values}, encoder.tensors)


def _queued(kernel: Kernel, pending_events: dict[int, Event], encoder: Encoder) -> Iterator[Plain]:
    """What is in the queue: time, priority, and a client whose process is to go on, or something to call."""
    client_of = {id(event): client for client, event in pending_events.items()}
    for time_s, priority, event in kernel.queue:
        if id(event) in client_of:
            yield [time_s, priority, ["client", client_of[id(event)]]]
        elif not isinstance(event, Event):
            yield [time_s, priority, encoder.encode(event)]
        elif isinstance(event, Process) and not event.ok:
            raise cast(BaseException, event.value)  # a client has failed, which SimPy would have told next
        # All other events of SimPy belong to processes that have ended, and do nothing.


def restore(simulation: Simulation, snapshot: Snapshot) -> None:
    """Bring a simulation of the same scenario, which has not begun, to where the run was.

    A snapshot that is not one of this scenario raises a `CodecError`.
    """
    with decoding():
        _restore(simulation, snapshot)


def _restore(simulation: Simulation, snapshot: Snapshot) -> None:
    state, world, kernel = snapshot.state, simulation.world, simulation.kernel
    for kind, *ends in map(str.split, state["parts"]):
        if kind == "link":
            _ = simulation.network.links[int(ends[0])][int(ends[1])]  # a link is made when it is first used
    parts = _parts(simulation)
    if parts.keys() != state["parts"].keys():
        raise CodecError(f"other parts: {sorted(parts.keys() ^ state['parts'].keys())}")
    decoder = Decoder(parts, _values(simulation), state["values"], snapshot.tensors)
    for name, part in parts.items():
        decoder.restore(part, state["parts"][name])
    _check(simulation, state["waiting"])
    world.resume(state["waiting"])
    for time_s, priority, what in state["queue"]:
        if not time_s >= kernel.now or priority not in PRIORITIES:
            raise CodecError(f"at {kernel.now} s an event is due at {time_s} s with the priority {priority}")
        if what[0] != "client":
            event = decoder.decode(what)
            if not callable(event.callback):
                raise CodecError(f"its queue holds {what}, which cannot be called")
            kernel.call_at(event, time_s, priority)
        elif what[1] in world.processes:
            kernel.trigger_at(world.processes[what[1]].target, time_s, priority)
        else:
            world.start_client(what[1])


def _check(simulation: Simulation, waiting: list[Any]) -> None:
    """Raise an error at numbers that would make a run go astray or take for ever."""
    if not 0 <= simulation.kernel.now < inf:
        raise CodecError(f"its time is {simulation.kernel.now} s")
    for client in simulation.clients:
        round_ = client.state.round
        if type(round_) is not int or not 0 <= round_ <= simulation.scenario.rounds + 1:
            raise CodecError(f"client {client.id} is in round {round_!r}")
    if len(set(waiting)) < len(waiting) or not set(waiting) <= set(range(len(simulation.clients))):
        raise CodecError(f"its clients {waiting} wait")
    num_changes, files = simulation.world.num_changes, simulation.files
    recorded = files is not None and simulation.scenario.output.events
    most = files.sync()[0] // SHORTEST_RECORD if files is not None and recorded else MOST_CHANGES
    if type(num_changes) is not int or not 0 <= num_changes <= most:
        raise CodecError(f"it counts {num_changes!r} changes of the world; at most {most:,} are possible")


def _parts(simulation: Simulation) -> dict[str, Any]:
    """Everything that has a state, by a name that another simulation of the scenario uses as well."""
    network, clients = simulation.network, simulation.clients
    optional = {
        "transport": network.reliable,
        "bandwidth": network.bandwidth,
        "theory": simulation.evaluations.theory,
    }
    return {
        "simulation": simulation,
        "kernel": simulation.kernel,
        "time_limit": simulation.time_limit,
        "digest": simulation.recorder.digest,
        "telemetry": simulation.telemetry,
        "scores": simulation.scores,
        "examination": simulation.evaluations,
        "world": simulation.world,
        "network": network,
        "obstacles": network.obstacles,
        **{name: part for name, part in optional.items() if part is not None},
        **{f"adversary {place}": adversary for place, adversary in enumerate(simulation.adversaries)},
        **{f"client {client.id}": client for client in clients},
        **{f"timer {client.id}": client.timer for client in clients},
        **{f"state {client.id}": client.state for client in clients},
        **{f"mailbox {client.id}": client.state.mailbox for client in clients},
        **{
            f"link {link.sender} {link.recipient}": link for links in network.links for link in links.values()
        },
    }


def _values(simulation: Simulation) -> list[type]:
    """Return the classes of values: those of the world, its faults, and the modules of the method."""
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
