"""The contract of every kind of component, and the plug-ins of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from pydantic import BaseModel

from rdpfl_sim.components.option_table import Component
from rdpfl_sim.contracts.contract import Contract, Guard, call_plugin
from rdpfl_sim.contracts.execution import ExecutorContract
from rdpfl_sim.contracts.learning import DataContract, ModelContract, PartitionContract
from rdpfl_sim.contracts.methods import MethodContract
from rdpfl_sim.contracts.vectors import (
    AggregatorContract,
    AttackContract,
    EquivocationContract,
    MalformedAttackContract,
    PreAggregatorContract,
)
from rdpfl_sim.contracts.world import (
    BandwidthContract,
    ComputeContract,
    FaultContract,
    GeographyContract,
    LatencyContract,
    LossContract,
    PlacementContract,
    ScheduleContract,
    StalenessContract,
    TimingAttackContract,
    TopologyContract,
    TransportContract,
    WaitContract,
)
from rdpfl_sim.errors import OptionError, PluginError
from rdpfl_sim.maths.attacks import ATTACKS

Location: TypeAlias = tuple[int | str, ...]

CONTRACTS: Mapping[str, Contract] = {
    "topology": TopologyContract(),
    "data": DataContract(),
    "partition": PartitionContract(),
    "model": ModelContract(),
    "method": MethodContract(),
    "attack": AttackContract(),
    "timing_attack": TimingAttackContract(),
    "attack_schedule": ScheduleContract(),
    "equivocation": EquivocationContract(),
    "placement": PlacementContract(),
    "latency": LatencyContract(),
    "geography": GeographyContract(),
    "loss": LossContract(),
    "bandwidth": BandwidthContract(),
    "transport": TransportContract(),
    "fault": FaultContract(),
    "compute": ComputeContract(),
    "wait": WaitContract(),
    "staleness": StalenessContract(),
    "executor": ExecutorContract(),
    "aggregator": AggregatorContract(),
    "pre_aggregator": PreAggregatorContract(),
}


def contract_of(kind: str, target: Callable[..., Any]) -> Contract:
    """Return the contract that a component must keep."""
    if kind == "attack" and ATTACKS.facts_of(target).sends_malformed:
        return MalformedAttackContract()
    return CONTRACTS[kind]


def plugins_in(part: Any, location: Location = ()) -> Iterator[tuple[Location, Component]]:
    """Yield the plug-ins in a part of a scenario with their locations, nested ones first."""
    if isinstance(part, BaseModel):
        for name, info in type(part).model_fields.items():
            yield from plugins_in(getattr(part, name), (*location, info.alias or name))
    if isinstance(part, list | tuple):
        for place, item in enumerate(part):
            yield from plugins_in(item, (*location, place))
    if isinstance(part, Component) and type(part).plugin is not None:
        yield location, part


def guard_and_try(component: Component) -> str | None:
    """Guard a plug-in during the run, and try it on small inputs now; return what is wrong with it."""
    plugin, target = type(component).plugin, type(component).target
    assert plugin is not None
    contract = contract_of(plugin.kind, target)
    component.guard_with(partial(Guard, plugin=plugin, contract=contract))
    bound = component.bind()
    guard, options = (bound.func, bound.keywords) if isinstance(bound, partial) else (bound, {})
    assert isinstance(guard, Guard)
    try:
        guard.try_out(options)
        flaw = call_plugin(plugin, contract.declared_flaw, bound)
        return None if flaw is None else str(PluginError(plugin, flaw))
    except PluginError as error:
        return str(error)
    except OptionError as error:
        if contract.samples_are_typical:
            return f"{plugin} rejects its option {error.option!r}: {error.message}"
    return None
