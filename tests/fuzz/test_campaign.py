"""The campaign of `make fuzz`: a short one passes, and each of its checks can fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from rdpfl_sim.attacks import ATTACKS
from rdpfl_sim.attacks.view import View
from rdpfl_sim.errors import ScenarioError
from rdpfl_sim.world.compute_time import TrainingTimes
from rdpfl_sim.world.network.network import Network
from rdpfl_sim.world.world import World
from tests.fuzz import campaign
from tests.fuzz.coverage import PAIRED, Plan, chosen_in, components
from tests.fuzz.effects import has_effect
from tests.fuzz.execution import FailedScenarioError, built, execute, loaded
from tests.fuzz.healing import heal
from tests.fuzz.scenarios import RandomScenario, random_scenario
from tests.fuzz.shrink import shrink
from tests.registries import temporary_components

NUM_SCENARIOS = 30

PARTITIONED = RandomScenario(
    {
        "rounds": 8,
        "clients": {"count": 4},
        "topology": "complete",
        "data": {"name": "synthetic", "shape": [2], "num_classes": 2, "num_train": 40, "num_test": 10},
        "partition": "iid",
        "model": "softmax",
        "timing": {"wait": {"name": "deadline", "seconds": 1.0}},
        "faults": [{"name": "partition", "sides": ["0..1"], "from_s": 1.0}],
    },
    {},
    heal_at_s=3.0,
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The first scenarios of a campaign."""
    plan = Plan(seed=1)
    plan.extend(0, max_scenarios=NUM_SCENARIOS)
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("number", range(NUM_SCENARIOS))
def test_random_scenario_has_no_flaw(plan: Plan, number: int) -> None:
    execute(plan.scenarios[number])


def test_plan_is_the_same_for_the_same_seed(plan: Plan) -> None:
    again = Plan(seed=1)
    again.extend(0, max_scenarios=5)
    assert again.scenarios == plan.scenarios[: len(again.scenarios)]


@pytest.mark.slow
def test_plan_covers_every_pair_that_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.coverage.PAIRED", ("wait", "timing_attack", "transport"))
    plan = Plan(seed=1)
    plan.extend(0)
    assert plan.missing == set()
    assert len(plan.drawn) + len(plan.refused) == plan.num_pairs
    [(pair, reason)] = plan.refused.items()
    assert pair == {("wait", "none"), ("timing_attack", "just_in_time")}
    assert "timing.wait" in reason


def test_components_registered_later_are_part_of_the_plan() -> None:
    with temporary_components():

        @ATTACKS.register
        def novelty(view: View) -> Tensor:
            return -view.own

        plan = Plan(seed=1)
        pairs = {frozenset({("attack", "novelty"), other}) for other in components() if other[0] in PAIRED}
        assert {pair for pair in pairs if ("executor", "ray") not in pair and len(pair) == 2} - {
            frozenset({("attack", "novelty"), ("attack", name)}) for name in ATTACKS
        } <= plan.missing


@pytest.mark.parametrize("seed", range(5))
def test_required_components_are_drawn(seed: int) -> None:
    required = {
        "fault": "crash",
        "attack": "noise",
        "aggregator": "median",
        "wait": "deadline",
        "loss": "bernoulli",
    }
    try:
        with loaded(random_scenario(seed, required)) as scenario:
            found = {chosen for chosen, _ in chosen_in(scenario)}
    except ScenarioError:
        return  # other options contradict each other
    assert set(required.items()) <= found


@pytest.fixture
def useless() -> Iterator[str]:
    with temporary_components():

        @ATTACKS.register
        def useless(view: View) -> Tensor:
            return view.own.clone()

        yield "useless"


def attacked(attack: str) -> RandomScenario:
    scenario = {**PARTITIONED.scenario, "faults": [], "adversary": {"ids": [0], "attack": attack}}
    return RandomScenario(scenario, {})


def test_component_without_effect_is_found(useless: str) -> None:
    assert has_effect(("attack", "noise"), attacked("noise"))
    assert not has_effect(("attack", useless), attacked(useless))


def test_removed_fault_and_replaced_topology_change_the_records() -> None:
    assert has_effect(("fault", "partition"), PARTITIONED)
    assert has_effect(("topology", "complete"), PARTITIONED)


def test_clients_that_restart_with_the_same_model_have_the_same_scores_in_a_resumed_run() -> None:
    crashes = {"name": "random_crashes", "mean_time_to_fail_s": 1.0, "mean_time_to_recover_s": 1.0}
    execute(
        RandomScenario(
            {
                "timing": {"max_time_s": 8.0, "wait": {"name": "quorum", "timeout_s": 9.0}},
                "faults": [{**crashes, "state": "fresh"}],
            },
            {},
        )
    )


def test_clients_make_progress_after_all_faults_have_ended() -> None:
    assert execute(PARTITIONED) == 4


def test_client_that_never_comes_back_after_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    start = World.start_client

    def forgets(world: World, client: int) -> None:
        if client != 2 or world.kernel.now == 0:
            start(world, client)

    crash = {"name": "crash", "clients": [1, 2], "at_s": 0.5, "recover_after_s": 9.0}
    drawn = replace(PARTITIONED, scenario={**PARTITIONED.scenario, "faults": [crash]})
    assert execute(drawn) == 4
    monkeypatch.setattr(World, "start_client", forgets)
    with pytest.raises(FailedScenarioError, match="deadlock: the event queue is empty"):
        execute(drawn)


def test_client_that_trains_for_ever_after_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    duration_s = TrainingTimes.duration_s

    def forgets(times: TrainingTimes, client: int, round_: int) -> float:
        return duration_s(times, client, round_) * (100 if client == 2 and round_ in (2, 3) else 1)

    bound = RandomScenario({**PARTITIONED.scenario, "evaluation": {"every": 8}}, {}, heal_at_s=3.0)
    monkeypatch.setattr(TrainingTimes, "duration_s", forgets)
    monkeypatch.setattr("tests.fuzz.healing._longest_training", lambda simulation, records: 1.0)
    with pytest.raises(FailedScenarioError, match=r"client 2 finished no round from 3\.0 s"):
        execute(bound)


def test_heal_ends_each_active_fault_once() -> None:
    with built(PARTITIONED) as experiment:
        changes = [
            (time_s, change.fields["phase"])
            for time_s, _, change in heal(experiment.deployment.changes(), 3.0)
        ]
    assert changes == [(1.0, "start"), (3.0, "end")]


def test_flaw_is_reduced_to_a_minimal_scenario_that_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    send = Network.send

    def loses_from_7(network: Network, sender: int, *arguments: Any, **options: Any) -> Any:
        assert sender != 7, "client 7 is not allowed"
        return send(network, sender, *arguments, **options)

    monkeypatch.setattr(Network, "send", loses_from_7)
    drawn = next(
        drawn
        for seed in range(100)
        if len((drawn := random_scenario(seed)).scenario["faults"]) == 2
        and drawn.scenario["clients"]["count"] == 8
        and isinstance(campaign.check(drawn), campaign.Failure)
    )
    failure = campaign.check(drawn)
    assert isinstance(failure, campaign.Failure)
    assert "client 7 is not allowed" in failure.text
    assert len(repr(failure.scenario.scenario)) < len(repr(drawn.scenario)) / 3
    assert failure.scenario.scenario.get("clients") in (None, {"count": 8})  # 10 by default
    assert not failure.scenario.scenario.get("faults")
    campaign.report(failure)
    output = capsys.readouterr().out
    folder = Path(output.strip().rpartition(" ")[2])
    assert campaign.main(["--repeat", str(folder)]) == 1
    monkeypatch.undo()
    assert campaign.main(["--repeat", str(folder)]) == 0


def test_shrinking_keeps_what_is_needed() -> None:
    drawn = RandomScenario({"a": {"b": 8, "c": [1, 2, 3]}, "d": 0.123}, {}, [(1, 2, 3, 4), (5, 6, 7, 8)])

    def fails(smaller: RandomScenario) -> bool:
        return smaller.scenario.get("a", {}).get("b", 0) >= 3 and 2 in smaller.scenario["a"].get("c", [])

    assert shrink(drawn, fails) == RandomScenario({"a": {"b": 3, "c": [2]}}, {}, [])
