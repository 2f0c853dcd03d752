"""Link outages: links that carry no messages for a time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, TypeAlias

from annotated_types import MaxLen, MinLen

from rdpfl_sim.components.options import Doc, NonNegativeInt, client_ids
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.faults.fault import (
    Condition,
    End,
    Fault,
    FaultContext,
    From,
    MeanTime,
    Schedule,
    Start,
    Until,
    fault,
    once,
    random_intervals,
)
from rdpfl_sim.world.network.obstacles import DirectedLink

Pair: TypeAlias = Annotated[list[NonNegativeInt], MinLen(2), MaxLen(2)]


@dataclass(frozen=True)
class LinkOutage(Fault):
    """Messages on these directed links are lost."""

    KIND, CONDITION = "link_outage", Condition.LINK_DOWN

    links: tuple[DirectedLink, ...]


@fault
def link_outage(
    context: FaultContext,
    *,
    links: Annotated[list[Pair], MinLen(1), Doc("client pairs [i, j]; they need not be linked")],
    one_way: Annotated[bool, Doc("whether only messages from i to j are lost")] = False,
    from_s: From = 0.0,
    until_s: Until = None,
) -> Schedule:
    """The listed links carry no messages for a time."""
    directed: dict[DirectedLink, None] = {}  # a set that keeps the order
    for i, j in links:
        client_ids("links", [i, j], context.num_clients)
        if (i, j) in directed:
            raise OptionError("links", f"the link between {i} and {j} occurs twice")
        directed |= dict.fromkeys([(i, j)] if one_way else [(i, j), (j, i)])
        if (min(i, j), max(i, j)) not in context.links:
            context.warn(f"clients {i} and {j} are not linked at the start")
    return once(LinkOutage(tuple(directed)), from_s, until_s)


@fault
def random_outages(
    context: FaultContext,
    *,
    mean_time_to_fail_s: Annotated[MeanTime, Doc("mean of the exponential time until a link's next outage")],
    mean_time_to_heal_s: Annotated[MeanTime, Doc("mean of the exponential duration of an outage")],
) -> Schedule:
    """Every link of the initial topology fails and recovers independently; both directions fail together."""
    streams = Streams(context.key)

    def changes(i: int, j: int) -> Schedule:
        fault = LinkOutage(((i, j), (j, i)))
        key = streams.key("link", i, j)
        for start_s, end_s in random_intervals(key, mean_time_to_fail_s, mean_time_to_heal_s):
            yield start_s, Start(fault)
            yield end_s, End(fault)

    return heapq.merge(*(changes(i, j) for i, j in context.links), key=itemgetter(0))
