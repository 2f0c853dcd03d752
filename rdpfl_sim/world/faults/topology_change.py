"""Topology changes: the links between clients are replaced during a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Annotated

import networkx as nx
from typing_extensions import override

from rdpfl_sim.components.options import Doc, NonNegative
from rdpfl_sim.components.schema import OneOf
from rdpfl_sim.errors import OptionError
from rdpfl_sim.world.faults.fault import (
    Fault,
    FaultContext,
    FaultFields,
    FaultTarget,
    MeanTime,
    Neighbours,
    Schedule,
    Start,
    fault,
    once,
)
from rdpfl_sim.world.network.topology import TOPOLOGIES


@dataclass(frozen=True)
class TopologyChange(Fault):
    """The links are replaced; `neighbours` are the new neighbours of every client."""

    KIND = "topology_change"

    neighbours: tuple[tuple[int, ...], ...]

    @override
    def start(self, target: FaultTarget) -> None:
        target.set_topology(self.neighbours)

    @override
    def start_fields(self) -> FaultFields:
        return {"links": [(i, j) for i, around in enumerate(self.neighbours) for j in around if i < j]}


@fault(changes_topology=True)
def resample_topology(
    context: FaultContext, *, every_s: Annotated[MeanTime, Doc("time between changes")]
) -> Schedule:
    """The scenario's topology is drawn again at every multiple of every_s."""
    return ((k * every_s, Start(_change(context.draw_topology(k)))) for k in count(1))


@fault(changes_topology=True)
def change_topology(
    context: FaultContext,
    *,
    at_s: Annotated[NonNegative, Doc("time of the change")],
    topology: Annotated[Callable[..., nx.Graph], OneOf(TOPOLOGIES), Doc("the new topology")],
) -> Schedule:
    """A different topology replaces the current one."""
    try:
        neighbours = context.build_topology(topology)
    except OptionError as error:
        raise OptionError(f"topology.{error.option}", error.message) from error
    return once(_change(neighbours), at_s, None)


def _change(neighbours: Neighbours) -> TopologyChange:
    return TopologyChange(tuple(map(tuple, neighbours)))
