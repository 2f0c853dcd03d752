"""The mean accuracy of honest clients, and the times at which it first reached each target."""

from types import SimpleNamespace
from typing import Any

import pytest

from rdpfl_sim.records.metrics import TARGETS
from rdpfl_sim.simulation.checkpoint_file import Decoder, Encoder
from rdpfl_sim.simulation.evaluation import Evaluations
from rdpfl_sim.simulation.simulation import simulate
from tests.support import small_scenario


def scoreboard(byzantine: tuple[int, ...] = (), num_honest: int = 1) -> Evaluations:
    scenario = small_scenario(clients={"count": num_honest + len(byzantine)})
    deployment = SimpleNamespace(byzantine=byzantine, hops=[])
    experiment: Any = SimpleNamespace(scenario=scenario, deployment=deployment)
    nothing: Any = None
    return Evaluations(experiment, nothing, nothing, nothing, write=lambda row: None)


def add(scores: Evaluations, time_s: float, client: int, accuracy: float) -> None:
    scores.add(time_s, client, round_=1, scores={"personal_accuracy": accuracy})


def test_one_evaluation_can_reach_several_targets() -> None:
    scores = scoreboard()
    add(scores, 0.0, 0, 0.05)
    assert scores.time_to_accuracy_s == {}
    add(scores, 1.5, 0, 0.28)
    assert scores.time_to_accuracy_s == {"0.1": 1.5, "0.15": 1.5, "0.2": 1.5, "0.25": 1.5}
    add(scores, 2.0, 0, 0.3)
    assert scores.time_to_accuracy_s["0.3"] == 2.0, "a target is reached by being equal to it"


def test_time_to_accuracy_is_the_first_time() -> None:
    scores = scoreboard()
    for time_s, accuracy in ((1.0, 0.2), (2.0, 0.0), (3.0, 0.2), (4.0, 0.25)):
        add(scores, time_s, 0, accuracy)
    assert scores.time_to_accuracy_s == {"0.1": 1.0, "0.15": 1.0, "0.2": 1.0, "0.25": 4.0}


def test_mean_covers_exactly_the_honest_clients() -> None:
    scores = scoreboard(byzantine=(2,), num_honest=2)
    add(scores, 1.0, 2, 1.0)
    add(scores, 1.0, 0, 0.18)
    assert scores.time_to_accuracy_s == {}, "the other honest client has not been tested yet"
    add(scores, 2.0, 1, 0.02)
    assert scores.time_to_accuracy_s == {"0.1": 2.0}


@pytest.mark.parametrize("target", TARGETS)
def test_target_is_reached_if_all_clients_have_exactly_that_accuracy(target: float) -> None:
    scores = scoreboard(num_honest=7)
    for accuracy in (0.01, 0.34, target):
        for client in range(7):
            add(scores, accuracy, client, accuracy)
    assert str(target) in scores.time_to_accuracy_s


def test_times_to_accuracy_survive_a_checkpoint() -> None:
    def grown(scores: Evaluations, more: list[tuple[float, float]]) -> Evaluations:
        for time_s, accuracy in more:
            add(scores, time_s, 0, accuracy)
        return scores

    before, after = [(1.0, 0.12), (2.0, 0.27)], [(3.0, 0.1), (4.0, 0.4)]
    left = grown(scoreboard(), before)
    encoder = Encoder({}, [])
    state = encoder.part(left)
    taken_up = scoreboard()
    Decoder({}, [], encoder.values, encoder.tensors).restore(taken_up, state)
    expected: dict[str, Any] = grown(scoreboard(), before + after).time_to_accuracy_s
    assert grown(taken_up, after).time_to_accuracy_s == expected
    assert expected["0.25"] == 2.0
    assert expected["0.3"] == 4.0


def test_summary_has_the_times_to_accuracy() -> None:
    result = simulate(small_scenario(rounds=6, evaluation={"every": 1}, training={"learning_rate": 0.5}))
    means: dict[float, float] = {}
    for row in result.metrics:
        means[row["time_s"]] = means.get(row["time_s"], 0.0) + row["personal_accuracy"] / 6
    found = result.summary["time_to_accuracy_s"]
    assert found
    for target in TARGETS:
        reached = [time_s for time_s, mean in means.items() if mean >= target]
        assert found.get(str(target)) == (min(reached) if reached else None)
