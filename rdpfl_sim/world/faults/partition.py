"""Partitions: groups of clients that cannot exchange messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Le, MinLen
from typing_extensions import override

from rdpfl_sim.components.options import ClientSet, Doc, client_ids
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.faults.fault import (
    Condition,
    End,
    Fault,
    FaultContext,
    FaultFields,
    From,
    MeanTime,
    Schedule,
    Start,
    Until,
    fault,
    num_clients_in,
    once,
    random_intervals,
    shuffled,
)
from rdpfl_sim.world.network.obstacles import Sides


@dataclass(frozen=True)
class Partition(Fault):
    """Messages between different sides are lost; clients on no side are not affected."""

    KIND, CONDITION = "partition", Condition.PARTITIONED

    sides: Sides

    @override
    def start_fields(self) -> FaultFields:
        return {"sides": [sorted(side) for side in self.sides]}


@fault(makes_partitions=True)
def partition(
    context: FaultContext,
    *,
    sides: Annotated[
        list[ClientSet], MinLen(1), Doc("sets of clients; a single set is cut off from all other clients")
    ],
    from_s: From = 0.0,
    until_s: Until = None,
) -> Schedule:
    """Messages between the sides are lost for a time; clients on no side are not affected."""
    given = [frozenset(client_ids("sides", side, context.num_clients)) for side in sides]
    if len(given) == 1:
        given.append(frozenset(range(context.num_clients)) - given[0])
        if not given[1]:
            raise OptionError("sides", "a single side must not contain all clients")
    taken: set[int] = set()
    for side in given:
        if taken & side:
            raise OptionError("sides", f"client {min(taken & side)} is on two sides")
        taken |= side
    return once(Partition(tuple(given)), from_s, until_s)


@fault(makes_partitions=True)
def random_partitions(
    context: FaultContext,
    *,
    mean_time_to_fail_s: Annotated[MeanTime, Doc("mean of the exponential time until the next partition")],
    mean_time_to_heal_s: Annotated[MeanTime, Doc("mean of the exponential duration of a partition")],
    fraction: Annotated[float, Gt(0), Le(0.5), Doc("fraction of clients on one side, rounded down")] = 0.5,
) -> Schedule:
    """The clients are repeatedly split at random into two sides that cannot exchange messages."""
    if context.num_clients < 2:
        raise OptionError("", "a partition needs at least two clients")
    num_smaller = num_clients_in(fraction, context.num_clients)
    streams = Streams(context.key)
    all_clients = frozenset(range(context.num_clients))

    def changes() -> Schedule:
        intervals = random_intervals(streams.key("cuts"), mean_time_to_fail_s, mean_time_to_heal_s)
        for number, (start_s, end_s) in enumerate(intervals):
            smaller = frozenset(shuffled(context.num_clients, streams.key("side", number))[:num_smaller])
            fault = Partition((smaller, all_clients - smaller))
            yield start_s, Start(fault)
            yield end_s, End(fault)

    return changes()
