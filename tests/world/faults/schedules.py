"""Fault schedules for tests: five clients on a ring."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import networkx as nx
import numpy as np
import pytest
from pydantic import ValidationError

from rdpfl_sim.components.schema import Component, OneOf, Strict
from rdpfl_sim.errors import OptionError
from rdpfl_sim.world.faults import FAULTS
from rdpfl_sim.world.faults.fault import Change, FaultContext
from rdpfl_sim.world.network.topology import neighbours

RING = [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]
MEANS = {"mean_time_to_fail_s": 3.0, "mean_time_to_heal_s": 1.0}
INFINITE: dict[str, dict[str, Any]] = {
    "random_partitions": MEANS,
    "random_outages": MEANS,
    "random_crashes": {"mean_time_to_fail_s": 3.0, "mean_time_to_recover_s": 1.0},
    "resample_topology": {"every_s": 2.0},
}


def context(num_clients: int = 5, key: int = 7, **changes: Any) -> FaultContext:
    def build(topology: Callable[..., nx.Graph]) -> Sequence[Sequence[int]]:
        return neighbours(topology(num_clients, np.random.default_rng(0)))

    facts = {
        "links": RING,
        "draw_topology": lambda k: [[k], [0]],
        "build_topology": build,
        **changes,
    }
    return FaultContext(num_clients=num_clients, key=key, **facts)


def schedule(name: str, where: FaultContext | None = None, **options: Any) -> Iterator[tuple[float, Change]]:
    return FAULTS[name](where or context(), **options)


def refusal(name: str, where: FaultContext | None = None, **options: Any) -> tuple[str, str]:
    """Return the option and the message with which a fault is rejected, before its schedule is read."""
    with pytest.raises(OptionError) as raised:
        schedule(name, where, **options)
    return raised.value.option, raised.value.message


class Section(Strict):
    fault: Annotated[Component, OneOf(FAULTS)]


def problems(name: str, **options: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as raised:
        Section.model_validate({"fault": {"name": name, **options}})
    return [(error["loc"][1:], error["msg"]) for error in raised.value.errors()]
