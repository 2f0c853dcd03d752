"""Clients that join late or leave. Unlike a crash, this is announced to all other clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rdpfl_sim.components.options import Doc, NonNegative, Positive
from rdpfl_sim.world.faults.fault import (
    ChosenClients,
    ChosenFraction,
    Clients,
    Condition,
    Fault,
    FaultContext,
    Schedule,
    chosen_clients,
    fault,
    once,
)


@dataclass(frozen=True)
class Absence(Fault):
    """Clients have not joined yet; they will join in the latest round among their neighbours."""

    KIND, CONDITION = "absence", Condition.ABSENT

    clients: Clients


@dataclass(frozen=True)
class Leave(Fault):
    """Clients leave for good."""

    KIND, CONDITION = "leave", Condition.DEPARTED

    clients: Clients


@fault
def late_join(
    context: FaultContext,
    *,
    clients: ChosenClients = None,
    fraction: ChosenFraction = None,
    at_s: Annotated[Positive, Doc("time at which they join")],
) -> Schedule:
    """Some clients join later than the others."""
    return once(Absence(chosen_clients(context, clients, fraction)), 0.0, at_s)


@fault
def leave(
    context: FaultContext,
    *,
    clients: ChosenClients = None,
    fraction: ChosenFraction = None,
    at_s: Annotated[NonNegative, Doc("time at which they leave")],
) -> Schedule:
    """Some clients leave permanently."""
    return once(Leave(chosen_clients(context, clients, fraction)), at_s, None)
