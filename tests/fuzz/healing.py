"""Runs whose faults all end at one time: then every honest client must finish a round within a bound."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import networkx as nx
import orjson

from rdpfl_sim.simulation.simulation import Simulation
from rdpfl_sim.world.client import Phase
from rdpfl_sim.world.faults.fault import Change, End, Fault, Start

Changes = Iterator[tuple[float, int, Change]]

ROUNDING = 1 + 1e-9
"""Times are sums of floats."""


def heal(changes: Changes, at_s: float) -> Changes:
    """Yield the changes before a time; then end every fault that can end, and yield nothing more."""
    active: dict[Hashable, list[Change]] = {}
    for time_s, place, change in changes:
        if time_s >= at_s:
            break
        for key, end in _ends(place, change.fault):
            if isinstance(change, Start):
                active.setdefault(key, []).append(end)
            else:
                active[key].pop()
        yield time_s, place, change
    for (place, *_), ends in active.items():  # type: ignore[misc]
        yield from ((at_s, place, end) for end in ends)


def _ends(place: int, fault: Fault) -> Iterator[tuple[Hashable, Change]]:
    """Yield the end of a fault for each client or link, with a key; none if the fault never ends."""
    condition, fields = fault.CONDITION, fault.start_fields()
    if condition is None or not fault.ends() or fields.get("for_good", False):
        return
    detail = fields.get(condition.detail) if condition.detail else None
    subjects = fields[condition.subjects]
    if condition.subjects == "sides":
        yield (place, fault.KIND, str(subjects), detail), End(fault)
        return
    for subject in subjects:
        one = replace(fault, **{condition.subjects: (subject,)})  # type: ignore[type-var]
        yield (
            (place, fault.KIND, tuple(subject) if condition.subjects == "links" else subject, detail),
            End(one),
        )


def check_progress(simulation: Simulation, records: bytes, heal_at_s: float) -> tuple[str | None, int]:
    """Return a flaw or None, and the number of honest clients that finished a round in time."""
    bound_s = (heal_at_s + bound_after(simulation, records, heal_at_s)) * ROUNDING
    ends_s = simulation.kernel.now
    finished = _rounds_finished(records)
    num_clients = 0
    for client in simulation.clients:
        later = [time_s for time_s in finished.get(client.id, ()) if time_s > heal_at_s]
        had_finished = client.state.phase is Phase.FINISHED and not later
        if client.adversary is not None or client.id in simulation.world.departed or had_finished:
            continue
        if later and later[0] <= bound_s:
            num_clients += 1
        elif bound_s <= ends_s:
            return f"client {client.id} finished no round from {heal_at_s} s to {bound_s} s", num_clients
    return None, num_clients


def bound_after(simulation: Simulation, records: bytes, heal_at_s: float) -> float:
    """Return the longest time until a client finishes a round after all faults have ended.

    With a timeout, this is one training and one wait. Without one, a client may have to wait until a chain of
    neighbours has caught up, each after one training and one message.
    """
    scenario, training_s = simulation.scenario, _longest_training(simulation, records)
    wait = scenario.timing.wait.bind()()
    if wait.fraction == 0:
        return training_s
    if wait.timeout_s is not None:
        return training_s + wait.timeout_s
    delays_s = [record["delay_s"] for record in _records(records) if record["event"] == "message_delivered"]
    graph = simulation.experiment.deployment.graph
    parts = [graph.subgraph(part) for part in nx.connected_components(graph)]
    longest = max(nx.diameter(part) for part in parts)
    return (longest + 1) * (training_s + max(delays_s, default=0.0))


def _longest_training(simulation: Simulation, records: bytes) -> float:
    """Return the longest training; one that a fault has slowed down may end after the fault."""
    started = [record["duration_s"] for record in _records(records) if record["event"] == "training_started"]
    times, rounds = simulation.experiment.compute_times, range(1, simulation.scenario.rounds + 1)
    later = [times.duration_s(client.id, round_) for client in simulation.clients for round_ in rounds]
    return max(started + later)


def _rounds_finished(records: bytes) -> dict[int, list[float]]:
    """Return the times at which each client finished its rounds."""
    found: dict[int, list[float]] = {}
    for record in _records(records):
        if record["event"] == "round_finished":
            found.setdefault(record["client"], []).append(record["time_s"])
    assert all(one <= other for times in found.values() for one, other in pairwise(times))
    return found


def _records(records: bytes) -> Iterator[dict[str, Any]]:
    return map(orjson.loads, records.splitlines())
