"""Slow-downs: clients whose local training takes longer for a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rdpfl_sim.components.options import Doc, Positive
from rdpfl_sim.world.faults.fault import (
    ChosenClients,
    ChosenFraction,
    Clients,
    Condition,
    Fault,
    FaultContext,
    From,
    Schedule,
    Until,
    chosen_clients,
    fault,
    once,
)


@dataclass(frozen=True)
class SlowDown(Fault):
    """The local training of these clients takes `factor` times as long."""

    KIND, CONDITION = "slow_down", Condition.SLOW

    clients: Clients
    factor: float


@fault(may_lose_messages=False)
def slow_down(
    context: FaultContext,
    *,
    clients: ChosenClients = None,
    fraction: ChosenFraction = None,
    factor: Annotated[Positive, Doc("factor by which the duration of training is multiplied")],
    from_s: From = 0.0,
    until_s: Until = None,
) -> Schedule:
    """Some clients train more slowly for a time."""
    return once(SlowDown(chosen_clients(context, clients, fraction), factor), from_s, until_s)
