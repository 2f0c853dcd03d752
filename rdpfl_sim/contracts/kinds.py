"""The contract of every kind of component, and the plug-ins of a scenario that break theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from pydantic import BaseModel

from rdpfl_sim.components.choice import Steps
from rdpfl_sim.components.option_table import Component
from rdpfl_sim.contracts.contract import Contract, Guard
from rdpfl_sim.contracts.execution import ExecutorContract
from rdpfl_sim.contracts.learning import Data, Model, Partition
from rdpfl_sim.contracts.methods import MethodContract
from rdpfl_sim.contracts.vectors import Aggregator, Attack, Equivocation, MalformedAttack, PreAggregator
from rdpfl_sim.contracts.world import (
    Ageing,
    Bandwidth,
    Compute,
    Delivering,
    Fault,
    Geography,
    Latency,
    Loss,
    Placement,
    Schedule,
    TimingAttack,
    Topology,
    Waiting,
)
from rdpfl_sim.errors import OptionError, PluginError
from rdpfl_sim.maths.attacks import ATTACKS

Location: TypeAlias = tuple[int | str, ...]

CONTRACTS: Mapping[str, Contract] = {
    "topology": Topology(),
    "data": Data(),
    "partition": Partition(),
    "model": Model(),
    "method": MethodContract(),
    "attack": Attack(),
    "timing_attack": TimingAttack(),
    "attack_schedule": Schedule(),
    "equivocation": Equivocation(),
    "placement": Placement(),
    "latency": Latency(),
    "geography": Geography(),
    "loss": Loss(),
    "bandwidth": Bandwidth(),
    "transport": Delivering(),
    "fault": Fault(),
    "compute": Compute(),
    "wait": Waiting(),
    "staleness": Ageing(),
    "executor": ExecutorContract(),
    "aggregator": Aggregator(),
    "pre_aggregator": PreAggregator(),
}


def contract_of(kind: str, target: Callable[..., Any]) -> Contract:
    """The contract that a component has to keep."""
    if kind == "attack" and ATTACKS.facts_of(target).sends_malformed:
        return MalformedAttack()
    return CONTRACTS[kind]


def plugins_in(part: Any, location: Location = ()) -> Iterator[tuple[Location, Component]]:
    """The plug-ins in a part of a scenario, those within others first, and where they stand."""
    if isinstance(part, Steps):
        yield from plugins_in(part.steps, location)
    elif isinstance(part, BaseModel):
        for name, info in type(part).model_fields.items():
            yield from plugins_in(getattr(part, name), (*location, info.alias or name))
    if isinstance(part, list | tuple):
        for place, item in enumerate(part):
            yield from plugins_in(item, (*location, place))
    if isinstance(part, Component) and type(part).plugin is not None:
        yield location, part


def hold(component: Component) -> str | None:
    """Guard a plug-in while the run lasts, and try it on small inputs now; return what is wrong with it."""
    plugin, target = type(component).plugin, type(component).target
    assert plugin is not None
    contract = contract_of(plugin.kind, target)
    component.guard_with(partial(Guard, plugin=plugin, contract=contract))
    bound = component.bind()
    guard, options = (bound.func, bound.keywords) if isinstance(bound, partial) else (bound, {})
    assert isinstance(guard, Guard)
    try:
        guard.try_out(options)
    except PluginError as error:
        return str(error)
    except OptionError as error:
        if contract.samples_fit:
            return f"{plugin} rejects its option {error.option!r}: {error.message}"
    return None
