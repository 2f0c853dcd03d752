"""A run that is restored from snapshots, at any events, is the same run."""

from pathlib import Path
from typing import Any

import pytest

from rdpfl_sim import Scenario
from rdpfl_sim.learning.datasets.download import CLASSES
from rdpfl_sim.methods import METHODS
from rdpfl_sim.simulation import checkpoint
from rdpfl_sim.simulation.checkpoint import Snapshot
from rdpfl_sim.simulation.checkpoint_file import CodecError
from rdpfl_sim.simulation.experiment import Experiment
from rdpfl_sim.simulation.resume import restore
from rdpfl_sim.simulation.simulation import Simulation
from tests.runs import Lived, lived
from tests.scenario.test_scenario_files import FILES
from tests.support import cheap, small_scenario

pytestmark = pytest.mark.slow

SHORT = ["rounds=6", "model=softmax", "evaluation.every=3", "evaluation.global_test=false"]
NUM_RESUMED = 12

FAULTS = [
    {"name": "partition", "sides": ["0..2"], "from_s": 2.5, "until_s": 3.5},
    {"name": "random_outages", "mean_time_to_fail_s": 4.0, "mean_time_to_heal_s": 1.0},
    {"name": "crash", "clients": [1, 2], "at_s": 3.0, "recover_after_s": 1.5, "state": "fresh"},
    {"name": "late_join", "clients": [4], "at_s": 2.0},
    {"name": "leave", "clients": [5], "at_s": 4.0},
    {"name": "slow_down", "clients": [0], "factor": 2.0, "from_s": 1.0, "until_s": 3.0},
    {"name": "resample_topology", "every_s": 2.0},
]
PATIENT = {
    "wait": {"name": "quorum", "fraction": 0.7, "timeout_s": 1.5},
    "staleness": {"name": "decay", "max_age": 3},
    "compute": {"name": "uniform"},
}
SMALL = {
    "synchronous": {"topology": "complete", "adversary": {"ids": [1, 2], "attack": "min_max"}},
    "asynchronous": {
        "topology": "complete",
        "adversary": {"ids": [1], "attack": "mimic"},
        "network": {"latency": "exponential", "loss": "bernoulli"},
        "timing": {"wait": "none", "staleness": "keep", "compute": "lognormal", "prefer": "newest"},
    },
    "everything": {
        "topology": {"name": "erdos_renyi", "p": 0.7},
        "adversary": [
            {"ids": [1], "attack": "alie", "timing": {"name": "delayed", "seconds": 0.4}},
            {"ids": [3], "attack": "dissensus", "knowledge": "neighbourhood", "collude": False},
        ],
        "network": {
            "latency": {"name": "pareto", "minimum_s": 0.05, "shape": 1.5},
            "loss": {"name": "gilbert_elliott", "mean_calm_s": 3.0, "mean_burst_s": 1.0},
            "duplication": 0.2,
            "bandwidth": {"name": "shared", "up_bytes_per_s": 1000.0, "down_bytes_per_s": 700.0},
        },
        "faults": FAULTS,
        "timing": PATIENT,
    },
    "reliable": {
        "topology": {"name": "erdos_renyi", "p": 0.7},
        "adversary": [
            {"ids": [1], "attack": "ipm", "timing": {"name": "replay", "age": 1}},
            {"ids": [3], "attack": "label_flip", "timing": "just_in_time", "equivocation": "mirrored"},
        ],
        "network": {
            "loss": {"name": "bernoulli", "probability": 0.3},
            "transport": {"name": "reliable", "timeout_s": 0.3, "max_attempts": 3},
            "bandwidth": {"name": "uplink", "bytes_per_s": 1500.0},
        },
        "faults": FAULTS,
        "timing": {**PATIENT, "max_time_s": 6.0},
    },
}


def small(name: str, **changes: Any) -> Experiment:
    return cheap(small_scenario(rounds=3, **{**SMALL[name], **changes}))


def assert_same(one: Lived, other: Lived) -> None:
    for left, right in zip(
        one.folder.events.getvalue().splitlines(), other.folder.events.getvalue().splitlines(), strict=False
    ):
        assert left == right
    assert one.traces == other.traces


@pytest.mark.parametrize("name", SMALL)
def test_run_restored_after_every_event_is_the_same_run(name: str) -> None:
    experiment = small(name)
    once = lived(experiment)
    assert once.num_events > 60
    assert_same(once, lived(experiment, leave_after=lambda event: True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scenario_can_be_restored(path: Path) -> None:
    scenario = Scenario.load(path, SHORT)
    if scenario.data.name in CLASSES:
        pytest.skip("its images are not needed here")
    experiment = cheap(scenario)
    once = lived(experiment)
    pause = max(1, once.num_events // NUM_RESUMED)
    assert_same(once, lived(experiment, leave_after=lambda event: event % pause == 0))


@pytest.mark.parametrize("method", [*METHODS], ids=str)
def test_state_of_every_method_is_kept_with_real_training(method: Any) -> None:
    experiment = Experiment(small_scenario(method=method, model="mlp", rounds=8, training={"momentum": 0.9}))
    assert_same(lived(experiment), lived(experiment, leave_after=lambda event: event % 9 == 0))


def changed_constants(simulation: Simulation) -> set[tuple[str, str]]:
    """Run a simulation and return the attributes outside the listed state that changed after any event."""

    def constants() -> dict[tuple[str, str], str]:
        return {
            (owner, attribute): f"{id(value)} {value!r}"
            for owner, component in checkpoint.stateful_components(simulation).items()
            if owner.partition(" ")[0] not in ("simulation", "kernel")  # they hold all the others
            for attribute, value in attributes(component).items()
            if attribute not in component.STATE
        }

    simulation.begin()
    known = constants()
    changed: set[tuple[str, str]] = set()
    while simulation.status is None:
        simulation.kernel.step()
        now = constants()
        known = {**now, **known}  # links are created on first use
        changed |= {key for key, value in now.items() if value != known[key]}
    # Processes and their events are restarted, changes are drawn again, states and links are components.
    transient = ("processes", "pending_event", "_job", "changes", "state", "links")
    return {key for key in changed if key[1] not in transient}


def attributes(component: object) -> dict[str, Any]:
    slots = getattr(type(component), "__slots__", ())
    return {**getattr(component, "__dict__", {}), **{name: getattr(component, name) for name in slots}}


@pytest.mark.parametrize("name", SMALL)
def test_every_component_lists_its_whole_state(name: str) -> None:
    assert changed_constants(Simulation(small(name), None, None)) == set()


def left_after(experiment: Experiment, num_events: int) -> Snapshot:
    simulation = Simulation(experiment, None, None)
    simulation.begin()
    for _ in range(num_events):
        simulation.kernel.step()
    return checkpoint.take_snapshot(simulation)


def test_shared_tensor_is_written_once_and_shared_after_restoring() -> None:
    experiment = small("synchronous")
    taken = left_after(experiment, 12)
    assert len(taken.tensors) == len({id(tensor) for tensor in taken.tensors})
    simulation = Simulation(experiment, None, None)
    restore(simulation, taken)
    simulation.begin()
    in_flight = [event.payload for _, _, event in simulation.kernel.queue if hasattr(event, "payload")]
    assert len(in_flight) > len({id(payload) for payload in in_flight})
    assert len({id(client.state.learning.w) for client in simulation.clients}) == 1, (
        "they start with the same"
    )


def test_size_of_a_snapshot_does_not_grow_with_rounds() -> None:
    sizes = []
    for rounds in (10, 40):
        experiment = cheap(small_scenario(**{**SMALL["synchronous"], "rounds": rounds}))
        simulation = Simulation(experiment, None, None)
        simulation.begin()
        while simulation.num_trained < 6 * (rounds - 1):
            simulation.kernel.step()
        sizes.append(len(checkpoint.take_snapshot(simulation).tensors))
    assert sizes[0] == sizes[1]


def test_snapshot_of_another_scenario_is_rejected() -> None:
    taken = left_after(small("synchronous"), 20)
    with pytest.raises(CodecError, match="different components"):
        restore(Simulation(small("synchronous", clients={"count": 7}), None, None), taken)
