"""A run with any component is the same run after it was restored, and the component lists its whole state."""

from __future__ import annotations

from typing import Any

import pytest

from rdpfl_sim.scenario.component_list import KINDS
from rdpfl_sim.simulation.simulation import Simulation
from tests.runs import lived
from tests.simulation.test_snapshot import assert_same, changed_constants
from tests.support import cheap, small_scenario
from tests.test_plugin_checks import NEED_FILES, NEEDED
from tests.using_plugins import using

pytestmark = pytest.mark.slow

BUILT_ONCE = {"data", "partition", "model", "topology", "placement", "executor"}
"""Kinds whose components are called only while a run is built. A restored run calls them again."""
STORED_IN_CLIENTS = {"method"}
"""Kinds without own state. `test_snapshot.py` restores runs with all methods and real training."""
NUM_EVENTS = 7
"""The number of events between two snapshots."""
CRASH = {"name": "crash", "clients": [0], "at_s": 2.5, "recover_after_s": 1.0}

SLOW_DOWN = {"name": "slow_down", "clients": [0], "factor": 3.0, "from_s": 1.0, "until_s": 4.0}

COMPONENTS = [
    (kind, name)
    for kind, choice in KINDS.items()
    if kind not in BUILT_ONCE | STORED_IN_CLIENTS
    for name in choice.registry
    if (kind, name) not in NEED_FILES
]


def with_component(kind: str, name: str) -> dict[str, Any]:
    """Return a scenario with this component, a fault and limited bandwidth."""

    def replaced(part: Any) -> Any:
        if part == "odd":
            return {"name": name, **NEEDED.get((kind, name), {})}
        if isinstance(part, dict):
            return {key: replaced(value) for key, value in part.items()}
        return [replaced(item) for item in part] if isinstance(part, list) else part

    changes: dict[str, Any] = replaced(using(kind))
    network = {"bandwidth": {"name": "uplink", "bytes_per_s": 1500.0}, **changes.pop("network", {})}
    timing = {"wait": {"name": "all", "timeout_s": 9.0}, **changes.pop("timing", {})}
    if (kind, name) == ("compute", "list"):
        timing["compute"]["seconds"] = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]
    # Without a timeout, a client must not wait for messages that a crash may lose.
    faults = [*changes.pop("faults", []), SLOW_DOWN if kind == "wait" else CRASH]
    return {"rounds": 3, "network": network, "timing": timing, "faults": faults, **changes}


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_run_with_any_component_is_the_same_after_restoring(kind: str, name: str) -> None:
    experiment = cheap(small_scenario(**with_component(kind, name)))
    once = lived(experiment)
    assert once.num_events > 5 * NUM_EVENTS
    assert_same(once, lived(experiment, leave_after=lambda event: event % NUM_EVENTS == 0))


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_every_component_lists_its_whole_state(kind: str, name: str) -> None:
    simulation = Simulation(cheap(small_scenario(**with_component(kind, name))), None, None)
    assert changed_constants(simulation) == set()
