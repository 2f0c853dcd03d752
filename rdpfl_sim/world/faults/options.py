"""Options shared by several faults, and the random choices that they describe."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Le

from rdpfl_sim.components.options import (
    LARGE,
    ClientSet,
    Doc,
    NonNegative,
    Positive,
    PositiveFraction,
    client_ids,
)
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams, uniform
from rdpfl_sim.rounding import round_down
from rdpfl_sim.world.faults.condition import Clients
from rdpfl_sim.world.faults.fault import FaultContext

ChosenClients: TypeAlias = Annotated[
    ClientSet | None, Doc("ids, or a string such as '0..4, 7'; either this or fraction")
]
ChosenFraction: TypeAlias = Annotated[
    PositiveFraction | None, Doc("fraction of the clients, drawn at random, rounded down to whole clients")
]
From: TypeAlias = Annotated[NonNegative, Doc("start time of the fault")]
Until: TypeAlias = Annotated[Positive | None, Doc("end time of the fault; by default it never ends")]
MeanTime: TypeAlias = Annotated[float, Ge(1e-6), Le(LARGE)]
"""Mean seconds between recurring faults. With smaller values, simulated time would hardly advance."""
RecoveredState: TypeAlias = Annotated[
    Literal["kept", "fresh"], Doc("whether a client recovers with its own model or with a new one")
]
CatchUp: TypeAlias = Annotated[
    bool, Doc("whether a client recovers in the latest round of its neighbours instead of its own round")
]


def chosen_clients(context: FaultContext, clients: ClientSet | None, fraction: float | None) -> Clients:
    """Return the listed clients, or a random fraction; a larger fraction only adds clients."""
    if clients is not None:
        if fraction is not None:
            raise OptionError("fraction", "give either clients or fraction, not both")
        return client_ids("clients", clients, context.num_clients)
    if fraction is None:
        raise OptionError("clients", "is required, unless fraction is given")
    order = shuffled(context.num_clients, Streams(context.key).key("chosen"))
    return tuple(sorted(order[: num_clients_in(fraction, context.num_clients)]))


def num_clients_in(fraction: float, num_clients: int) -> int:
    """Return the number of clients in a fraction, rounded down; raise an error if it is zero."""
    num = round_down(fraction * num_clients)
    if num == 0:
        raise OptionError("fraction", f"is less than one client; allowed: at least 1/{num_clients}")
    return num


def shuffled(num_clients: int, key: int) -> list[int]:
    """Return all clients in an order drawn from a random stream."""
    return sorted(range(num_clients), key=partial(uniform, key))
