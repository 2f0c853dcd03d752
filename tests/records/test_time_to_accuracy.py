"""The times at which the mean accuracy of honest clients first reached each target."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rdpfl_sim.records.metrics import MOMENTS, TARGETS, times_to_accuracy
from rdpfl_sim.simulation.simulation import simulate
from tests.results.run_folders import scores
from tests.support import small_scenario


def row(time_s: float, client: int, accuracy: float, byzantine: int = 0) -> dict[str, Any]:
    return {"client": client, "byzantine": byzantine, **scores(time_s, accuracy)}


def times(rows: list[dict[str, Any]], num_honest: int = 1) -> dict[str, float]:
    return times_to_accuracy(rows, ["trained"], num_honest)["trained"]


def test_one_evaluation_can_reach_several_targets() -> None:
    rows = [row(0.0, 0, 0.05)]
    assert times(rows) == {}
    rows.append(row(1.5, 0, 0.28))
    assert times(rows) == {"0.1": 1.5, "0.15": 1.5, "0.2": 1.5, "0.25": 1.5}
    rows.append(row(2.0, 0, 0.3))
    assert times(rows)["0.3"] == 2.0, "a target is reached by being equal to it"


def test_time_to_accuracy_is_the_first_time() -> None:
    found = times(
        [row(time_s, 0, value) for time_s, value in ((1.0, 0.2), (2.0, 0.0), (3.0, 0.2), (4.0, 0.25))]
    )
    assert found == {"0.1": 1.0, "0.15": 1.0, "0.2": 1.0, "0.25": 4.0}


def test_mean_covers_exactly_the_honest_clients() -> None:
    rows = [row(1.0, 2, 1.0, byzantine=1), row(1.0, 0, 0.18)]
    assert times(rows, num_honest=2) == {}, "the other honest client has not been tested yet"
    assert times([*rows, row(2.0, 1, 0.02)], num_honest=2) == {"0.1": 2.0}


def test_rows_are_in_the_order_of_their_rounds_and_counted_at_the_end_of_their_training() -> None:
    # Client 1 trains until 1.0 and waits longer than client 0, which trains until 2.0.
    rows = [row(2.0, 0, 0.2), row(1.0, 1, 0.24)]
    assert times(rows, num_honest=2) == {"0.1": 1.0, "0.15": 2.0, "0.2": 2.0}


def test_evaluations_of_one_instant_count_together() -> None:
    rows = [row(1.0, 0, 0.1), row(1.0, 1, 0.1), row(2.0, 0, 0.4), row(2.0, 1, 0.0)]
    assert times(rows, num_honest=2) == {"0.1": 1.0, "0.15": 2.0, "0.2": 2.0}


@pytest.mark.parametrize("target", TARGETS)
def test_target_is_reached_if_all_clients_have_exactly_that_accuracy(target: float) -> None:
    rows = [row(value, client, value) for value in (0.01, 0.34, target) for client in range(7)]
    assert str(target) in times(rows, num_honest=7)


@pytest.mark.parametrize("seed", range(5))
def test_times_agree_with_a_mean_that_is_computed_anew_at_every_instant(seed: int) -> None:
    draw = random.Random(seed)
    rows = [row(draw.randrange(20) / 4, draw.randrange(4), draw.random()) for _ in range(60)]
    reached: dict[str, float] = {}
    for now_s in sorted({one["trained_time_s"] for one in rows}):
        latest = [0.0] * 4
        for one in sorted(rows, key=lambda one: one["trained_time_s"]):
            if one["trained_time_s"] <= now_s:
                latest[one["client"]] = one["trained_personal_accuracy"]
        for target in TARGETS:
            if sum(latest) / 4 >= target:
                reached.setdefault(str(target), now_s)
    assert times(rows, num_honest=4) == reached


def test_summary_has_the_times_to_accuracy_of_both_moments() -> None:
    result = simulate(small_scenario(rounds=6, evaluation={"every": 1}, training={"learning_rate": 0.5}))
    for moment, section in (("trained", result.summary), ("updated", result.summary["updated"])):
        means: dict[float, float] = {}
        for one in result.metrics:
            values: dict[str, Any] = {**one}
            time_s = values[f"{moment}_time_s"]
            means[time_s] = means.get(time_s, 0.0) + values[f"{moment}_personal_accuracy"] / 6
        found = section["time_to_accuracy_s"]
        assert found
        for target in TARGETS:
            reached = [time_s for time_s, mean in means.items() if mean >= target]
            assert found.get(str(target)) == (min(reached) if reached else None)
    assert list(MOMENTS) == ["trained", "updated"]
