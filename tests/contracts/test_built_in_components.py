"""Built-in components satisfy the contracts that plug-ins are checked against."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from rdpfl_sim.components.registry import Plugin
from rdpfl_sim.components.schema import Component
from rdpfl_sim.contracts.call_checks import Guard
from rdpfl_sim.contracts.methods import check_steps, rehearse
from rdpfl_sim.contracts.plugin_check import CONTRACTS, contract_of
from rdpfl_sim.methods import METHODS
from rdpfl_sim.scenario.component_list import KINDS
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.world.faults.fault import FaultContext
from rdpfl_sim.world.network.topology import neighbours, ring
from tests.support import small_scenario

NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    ("compute", "list"): {"seconds": [1.0, 2.0]},
    ("geography", "regions"): {"delays_s": [[0.0, 0.1], [0.2, 0.0]]},
    ("fault", "partition"): {"sides": [[0, 1]]},
    ("fault", "link_outage"): {"links": [[0, 1]]},
    ("fault", "crash"): {"clients": [1], "at_s": 2.0},
    ("fault", "late_join"): {"clients": [1], "at_s": 2.0},
    ("fault", "leave"): {"clients": [1], "at_s": 2.0},
    ("fault", "slow_down"): {"clients": [1], "factor": 2.0},
    ("fault", "random_partitions"): {"mean_time_to_fail_s": 9.0, "mean_time_to_heal_s": 3.0},
    ("fault", "random_outages"): {"mean_time_to_fail_s": 9.0, "mean_time_to_heal_s": 3.0},
    ("fault", "random_crashes"): {"mean_time_to_fail_s": 9.0, "mean_time_to_recover_s": 3.0},
    ("fault", "resample_topology"): {"every_s": 5.0},
    ("fault", "change_topology"): {"at_s": 5.0, "topology": "complete"},
}
"""Options without a default."""

NEED_FILES = {
    *(("data", name) for name in ("cifar10", "cifar100", "mnist", "fashion_mnist", "npz")),
    *(("topology", "file"), ("fault", "churn_trace")),
}
CALLED_WITH_ARGUMENTS = {"topology", "placement", "partition", "data", "model", "fault"}
SPECIAL = {"method", "executor"}


def components(*, called: bool) -> list[tuple[str, str]]:
    return [
        (kind, name)
        for kind, choice in KINDS.items()
        if kind not in SPECIAL and (kind in CALLED_WITH_ARGUMENTS) is called
        for name in choice.registry
        if (kind, name) not in NEED_FILES
    ]


def component(kind: str, name: str) -> Component:
    return KINDS[kind].validate({"name": name, **NEEDED.get((kind, name), {})})


def guarded(built: Component, kind: str) -> tuple[Guard, dict[str, Any]]:
    """Return the component as a plug-in, and its options."""
    target = type(built).target
    plugin = Plugin(kind, built.name, "package itself 1.0", target.__module__)
    built.guard_with(partial(Guard, plugin=plugin, contract=contract_of(kind, target)))
    bound = built.bind()
    return (bound.func, bound.keywords) if isinstance(bound, partial) else (bound, {})


def test_every_kind_has_a_contract() -> None:
    assert CONTRACTS.keys() == KINDS.keys()


@pytest.mark.parametrize(("kind", "name"), components(called=False))
def test_component_satisfies_its_contract_on_samples(kind: str, name: str) -> None:
    guard, options = guarded(component(kind, name), kind)
    assert list(guard.contract.samples(guard.target))
    guard.try_out(options)
    guard.contract.check_declarations(partial(guard, **options))


def arguments(kind: str) -> tuple[Any, ...]:
    def rng() -> np.random.Generator:
        return np.random.default_rng(1)

    graph = ring(12, rng())
    around = neighbours(graph)
    context = FaultContext(12, sorted(graph.edges), 7, lambda k: around, lambda topology: around)
    return {
        "topology": (12, rng()),
        "placement": (graph, 3, rng(), {0}),
        "partition": (np.arange(600) % 10, 12, rng()),
        "data": (rng(),),
        "model": ((1, 8, 8), 10),
        "fault": (context,),
    }[kind]


@pytest.mark.parametrize(("kind", "name"), components(called=True))
def test_component_satisfies_its_contract_on_real_arguments(kind: str, name: str) -> None:
    guard, options = guarded(component(kind, name), kind)
    guard(*arguments(kind), **options)


@pytest.mark.parametrize("name", METHODS)
def test_method_satisfies_its_contract(name: str) -> None:
    experiment = Experiment(small_scenario(method=name, model="mlp"))
    plugin = Plugin("method", name, "package itself 1.0", "rdpfl_sim")
    method = check_steps(plugin, experiment.method)
    rehearse(
        method,
        plugin,
        experiment.initial_model(0),
        experiment.computation,
    )
