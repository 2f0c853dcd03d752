"""Find the plug-ins of a scenario and check them against the contract of their kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TypeAlias

from pydantic import BaseModel

from rdpfl_sim.attacks import ATTACKS
from rdpfl_sim.components.registry import Target
from rdpfl_sim.components.schema import Component
from rdpfl_sim.contracts.call_checks import Contract, FlawError, Guard, call_plugin, describe
from rdpfl_sim.contracts.learning import LEARNING_CONTRACTS
from rdpfl_sim.contracts.maths import MALFORMED_ATTACK, MATHS_CONTRACTS
from rdpfl_sim.contracts.methods import METHOD_CONTRACT
from rdpfl_sim.contracts.world import WORLD_CONTRACTS
from rdpfl_sim.errors import OptionError, PluginError
from rdpfl_sim.execution.executor import Executor

Location: TypeAlias = tuple[int | str, ...]


def _check_executor(result: object, *arguments: object) -> None:
    if not isinstance(result, Executor):
        raise FlawError(f"returns {describe(result)}, not an Executor")


CONTRACTS: Mapping[str, Contract] = {
    **MATHS_CONTRACTS,
    **LEARNING_CONTRACTS,
    **WORLD_CONTRACTS,
    "method": METHOD_CONTRACT,
    "executor": Contract(check=_check_executor),
}


def contract_of(kind: str, target: Target) -> Contract:
    """Return the contract of a component."""
    if kind == "attack" and ATTACKS.facts_of(target).sends_malformed:
        return MALFORMED_ATTACK
    return CONTRACTS[kind]


def plugins_in(part: object, location: Location = ()) -> Iterator[tuple[Location, Component]]:
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
    """Test a plug-in with small inputs, and guard it during the run; return the problem, if any."""
    plugin, target = type(component).plugin, type(component).target
    assert plugin is not None
    contract = contract_of(plugin.kind, target)
    component.guard_with(partial(Guard, plugin=plugin, contract=contract))
    bound = component.bind()
    guard, options = (bound.func, bound.keywords) if isinstance(bound, partial) else (bound, {})
    assert isinstance(guard, Guard)
    try:
        guard.try_out(options)
        call_plugin(plugin, contract.check_declarations, bound)
    except PluginError as error:
        return str(error)
    except OptionError as error:
        if contract.samples_are_typical:
            return f"{plugin} rejects its option {error.option!r}: {error.message}"
    return None
