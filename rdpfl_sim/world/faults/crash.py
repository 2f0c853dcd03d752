"""Crashes: clients that stop without notice, permanently or until they recover."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Annotated

from typing_extensions import override

from rdpfl_sim.components.options import ClientSet, Doc, NonNegative, Positive, client_ids
from rdpfl_sim.errors import OptionError
from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.faults.fault import (
    CatchUp,
    ChosenClients,
    ChosenFraction,
    Clients,
    Condition,
    End,
    Fault,
    FaultContext,
    FaultFields,
    MeanTime,
    RecoveredState,
    Schedule,
    Start,
    chosen_clients,
    fault,
    once,
    random_intervals,
)

TOO_FREQUENT = (
    "clients crash every {} s on average and train for at least {} s per round; "
    "set timing.max_time_s to limit the run"
)


@dataclass(frozen=True)
class Crash(Fault):
    """Clients stop without notice; `fresh` and `catch_up` define how they recover."""

    KIND, CONDITION = "crash", Condition.CRASHED

    clients: Clients
    for_good: bool = False
    fresh: bool = False
    catch_up: bool = True

    @override
    def start_fields(self) -> FaultFields:
        return {"clients": self.clients, "for_good": self.for_good}

    @override
    def end_fields(self) -> FaultFields:
        return {"clients": self.clients, "fresh": self.fresh, "catch_up": self.catch_up}


@fault
def crash(
    context: FaultContext,
    *,
    clients: ChosenClients = None,
    fraction: ChosenFraction = None,
    at_s: Annotated[NonNegative, Doc("time of the crash")],
    recover_after_s: Annotated[Positive | None, Doc("by default, clients never recover")] = None,
    state: RecoveredState = "kept",
    catch_up: CatchUp = True,
) -> Schedule:
    """Some clients stop, and may recover."""
    chosen = chosen_clients(context, clients, fraction)
    if recover_after_s is None:
        _reject_recovery_options("recover_after_s", state, catch_up)
        return once(Crash(chosen, for_good=True), at_s, None)
    fault = Crash(chosen, fresh=state == "fresh", catch_up=catch_up)
    return iter([(at_s, Start(fault)), (at_s + recover_after_s, End(fault))])


@fault
def random_crashes(
    context: FaultContext,
    *,
    clients: Annotated[ClientSet | None, Doc("by default all")] = None,
    mean_time_to_fail_s: Annotated[MeanTime, Doc("mean of the exponential time until a client's next crash")],
    mean_time_to_recover_s: Annotated[
        MeanTime | None, Doc("mean of the exponential time until recovery; by default, clients never recover")
    ] = None,
    state: RecoveredState = "kept",
    catch_up: CatchUp = True,
) -> Schedule:
    """Clients crash and recover, each independently."""
    all_clients = tuple(range(context.num_clients))
    chosen = all_clients if clients is None else client_ids("clients", clients, context.num_clients)
    if mean_time_to_recover_s is None:
        _reject_recovery_options("mean_time_to_recover_s", state, catch_up)
    if context.training_s is not None and mean_time_to_fail_s < context.training_s:
        context.warn(TOO_FREQUENT.format(f"{mean_time_to_fail_s:g}", f"{context.training_s:g}"))
    mean_s = inf if mean_time_to_recover_s is None else mean_time_to_recover_s
    streams = Streams(context.key)

    def changes(client: int) -> Schedule:
        fault = Crash((client,), mean_s == inf, state == "fresh", catch_up)
        for start_s, end_s in random_intervals(streams.key("client", client), mean_time_to_fail_s, mean_s):
            yield start_s, Start(fault)
            if fault.for_good:
                return
            yield end_s, End(fault)

    return heapq.merge(*map(changes, chosen), key=itemgetter(0))


def _reject_recovery_options(required: str, state: str, catch_up: bool) -> None:
    """Raise an error for options that have no effect because no client recovers."""
    for option, is_default in (("state", state == "kept"), ("catch_up", catch_up)):
        if not is_default:
            raise OptionError(option, f"has no effect without {required}")
