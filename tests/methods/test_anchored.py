"""R-DPFL with the anchored estimator: messages are clipped around the own update, relative to its length."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rdpfl_sim import simulate
from rdpfl_sim.aggregators import AGGREGATORS, mean
from rdpfl_sim.methods.anchored import Anchored, AnchoredState
from rdpfl_sim.methods.base import Method, RunInfo, State, Trained
from rdpfl_sim.methods.batching import Received
from rdpfl_sim.methods.direct import Direct
from rdpfl_sim.methods.rdpfl import Rdpfl
from rdpfl_sim.vectors import norm
from tests.methods.one_client import message, messages, start, stats, update
from tests.support import small_scenario, trained

SETTINGS = RunInfo(rounds=100)
U = torch.tensor([0.6, 0.8])
"""An update of length 1."""
NEAR, FAR = U + torch.tensor([0.0, 1.0]), U + torch.tensor([30.0, 40.0])


def method(**options: Any) -> Anchored:
    """Two local steps at a learning rate of 0.5: gamma = 1, and u is minus the change by training."""
    return Anchored(SETTINGS, **{"lambda_": 0.5, "aggregator": mean, **options})


def rdpfl_method(**options: Any) -> Rdpfl:
    return Rdpfl(SETTINGS, **{"lambda_": 0.5, "aggregator": mean, "predictor": "last", **options})


def say(*vectors: Tensor | list[float]) -> list[Received]:
    return messages(*vectors)


def run(rdpfl: Method, rounds: list[list[Received]], u: Tensor = U) -> tuple[Any, list[Any]]:
    """Run rounds in which the own update is u."""
    state, reports = start(rdpfl, torch.zeros(2)), []
    for received in rounds:
        state, report = update(rdpfl, state, trained(state.w[0] - u), received)
        reports.append(report)
    return state, reports


def along(state: State, u: Tensor) -> Trained:
    """Return a training whose direction is exactly u, without rounding."""
    return replace(trained(state.w[0]), direction=u.unsqueeze(0))


def test_first_round_clips_messages_to_c_times_the_own_length() -> None:
    state, [report] = run(method(), [say(NEAR, FAR)])
    # tau = 1.5; the near message is 1 away, the far one comes to u + (0.9, 1.2): d = u + (0.45, 1.1).
    assert state.w[0].tolist() == pytest.approx([-(0.6 + 0.5 * 1.05), -(0.8 + 0.5 * 1.9)])
    assert report["tau"] == pytest.approx(1.5)
    assert report["d_norm"] == pytest.approx((1.05**2 + 1.9**2) ** 0.5)
    assert (report["num_clipped"], report["clipped"], report["bounded"]) == (1, True, False)


def test_threshold_is_a_running_mean_of_the_own_lengths() -> None:
    rdpfl = method()
    state, _ = run(rdpfl, [say(NEAR, FAR)])
    own = trained(state.w[0] - 2 * U)
    after, report = update(rdpfl, state, own, say(2 * U - torch.tensor([0.0, 3.3])))
    # tau = 0.9 * 1.5 + 0.1 * 1.5 * 2 = 1.65, half of the message's distance: d = (1.2, 1.6 - 1.65).
    assert report["tau"] == pytest.approx(1.65)
    expected = state.w[0] - torch.tensor([1.2 + 0.5 * 1.2, 1.6 + 0.5 * (1.6 - 1.65)])
    assert after.w[0].tolist() == pytest.approx(expected.tolist())


def test_message_within_the_threshold_is_not_changed() -> None:
    _, [report] = run(method(), [say(NEAR, U)])
    assert (report["num_clipped"], report["clipped"]) == (0, False)


def test_with_a_large_threshold_the_direction_is_the_aggregate() -> None:
    direct = Direct(SETTINGS, lambda_=0.5)
    state = start(direct, torch.zeros(2))
    expected, _ = update(direct, state, trained(state.w[0] - U), say(NEAR, FAR))
    found, _ = run(method(c=1e6, max_norm=1e6), [say(NEAR, FAR)])
    torch.testing.assert_close(found.w, expected.w)


def test_direction_is_also_bounded_by_the_largest_norm() -> None:
    state, [report] = run(method(max_norm=0.5, lambda_=1.0), [say(NEAR, FAR)])
    assert report["bounded"] is True
    assert report["d_norm"] == pytest.approx(0.5)
    assert norm(-state.w[0] - U) == pytest.approx(0.5)


def test_stale_message_is_scaled_before_it_is_clipped() -> None:
    stale = [message(4 * NEAR, 0.25)]
    assert torch.equal(run(method(), [stale])[0].w, run(method(), [say(NEAR)])[0].w)


def test_lambda_zero_is_local_training() -> None:
    state, _ = run(method(lambda_=0.0), [say(FAR), [], say(-FAR, NEAR)])
    assert state.w[0].tolist() == pytest.approx((-3 * U).tolist())


def test_round_without_messages_is_a_local_step_and_its_length_counts() -> None:
    rdpfl = method()
    before, _ = run(rdpfl, [say(NEAR)])
    after, report = update(rdpfl, before, trained(before.w[0] - 3 * U), [])
    assert torch.allclose(after.w[0], before.w[0] - 3 * U)
    assert report.pop("neighbour_share") == 0.0
    assert report == {"u_norm": pytest.approx(3.0), "d_norm": 0.0, "tau": pytest.approx(1.35 + 0.45)}
    assert after.tau.tolist() == [report["tau"]]
    first, [report] = run(rdpfl, [[]])
    assert first.w[0].tolist() == pytest.approx((-U).tolist())
    assert report["tau"] == pytest.approx(1.5)


def test_messages_are_neither_predicted_nor_stored() -> None:
    rdpfl = method()
    state, _ = run(rdpfl, [say(NEAR), say(FAR), say(NEAR)])
    assert rdpfl.predicted_direction(state) is None
    assert {field.name for field in fields(state)} == {"w", "tau", "num_observed"}


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_diverged_client_ignores_messages_and_its_length_does_not_count(wrong: float) -> None:
    rdpfl = method()
    before, _ = run(rdpfl, [say(NEAR)])
    own = trained(before.w[0] - torch.tensor([wrong, 1.0]))
    after, report = update(rdpfl, before, own, say(NEAR, FAR))
    alone, _ = update(rdpfl, before, own, [])
    assert after.w.numpy().tobytes() == alone.w.numpy().tobytes()
    assert (after.tau, after.num_observed) == (before.tau, before.num_observed)
    assert report["d_norm"] == 0.0
    assert report["tau"] is None


def test_first_finite_round_after_a_divergence_sets_the_threshold() -> None:
    rdpfl = method()
    first = start(rdpfl, torch.zeros(2))
    diverged, _ = update(rdpfl, first, trained(first.w[0] * torch.nan), say(NEAR))
    sound = AnchoredState(torch.zeros(1, 2), tau=diverged.tau, num_observed=diverged.num_observed)
    _, report = update(rdpfl, sound, trained(-2 * U), say(NEAR))
    assert report["tau"] == pytest.approx(3.0)


# Effects of attacks


def test_an_attack_of_constant_strength_raises_the_threshold_of_the_paper_but_not_this_one() -> None:
    rounds = [say([5.0 * (-1) ** t, 0.0]) for t in range(30)]
    assert [report["tau"] for report in run(method(), rounds)[1]] == pytest.approx([1.5] * 30)
    paper = run(rdpfl_method(), rounds)[1]
    # The first deviation of 10 counts in round 3; after k of them tau = 0.9^(2 + k) + (1 - 0.9^k) 15.
    assert [report["tau"] for report in paper[2:]] == pytest.approx(
        [0.9 ** (2 + k) + (1 - 0.9**k) * 15 for k in range(1, 29)]
    )
    clipped = [report["clipped"] for report in paper]
    assert clipped == [False] + [True] * 10 + [False] * 19


def test_repeated_message_is_predicted_by_the_paper_and_clipped_here() -> None:
    rounds = [say(U)] * 4 + [say([-50.0, 0.0])] * 3
    paper = run(rdpfl_method(max_norm=100.0), rounds)[1]
    assert [report["d_norm"] for report in paper[5:]] == pytest.approx([50.0, 50.0])
    anchored = run(method(max_norm=100.0), rounds)[1]
    assert max(report["d_norm"] for report in anchored) <= 1 + 1.5 + 1e-5


hostile = st.floats(allow_nan=False, allow_infinity=False, width=32)
vectors = st.lists(hostile, min_size=2, max_size=2)
updates = st.lists(st.floats(-1000, 1000, width=32), min_size=2, max_size=2)
lives = st.lists(st.tuples(updates, st.lists(vectors, max_size=5)), min_size=1, max_size=9)


@given(lives)
def test_no_message_moves_the_threshold(rounds) -> None:
    rdpfl = method(lambda_=1.0)
    hearing, alone = (start(rdpfl, torch.zeros(2)) for _ in range(2))
    for u, said in rounds:
        direction = torch.tensor(u)
        hearing, report = update(rdpfl, hearing, along(hearing, direction), say(*said))
        alone, expected = update(rdpfl, alone, along(alone, direction), [])
        assert report["tau"] == expected["tau"]


@given(st.sampled_from(sorted(AGGREGATORS)), lives)
def test_lemma_3_holds_and_the_model_stays_finite_for_any_messages(aggregator, rounds) -> None:
    rdpfl = method(aggregator=AGGREGATORS[aggregator])
    state = start(rdpfl, torch.zeros(2))
    for u, said in rounds:
        before = state.w
        own = along(state, torch.tensor(u))
        state, report = update(rdpfl, state, own, say(*said))
        assert report["d_norm"] <= rdpfl.max_norm * (1 + 1e-5)
        assert torch.isfinite(state.w).all()
        moved = norm(state.w[0] - before[0] + own.direction[0])
        assert moved <= 0.5 * rdpfl.max_norm * (1 + 1e-4) + 1e-5 * (norm(before) + norm(own.direction))


@given(lives)
def test_mean_of_messages_is_within_tau_of_the_own_update(rounds) -> None:
    # |d - Clip(u; G_d)| <= tau: clipping to a ball brings no two points farther apart.
    rdpfl = method(lambda_=1.0, max_norm=10.0)
    for u, said in rounds:
        direction, first = torch.tensor(u), start(rdpfl, torch.zeros(2))
        state, report = update(rdpfl, first, along(first, direction), say(*said))
        if said:
            d = -state.w[0] - direction
            anchor = direction * min(1.0, 10.0 / max(norm(direction), 1e-30))
            assert norm(d - anchor) <= report["tau"] * (1 + 1e-5) + 1e-5 * norm(direction)


@given(st.lists(vectors, min_size=1, max_size=5), st.floats(0.0, 1.9))
def test_no_messages_turn_a_step_of_steady_length_against_the_own_direction(said, lambda_) -> None:
    # <u + lambda d, u> >= (1 - lambda (c - 1)) |u|^2, c = 1.5.
    state, _ = run(method(lambda_=lambda_), [say(*said)])
    assert -torch.dot(state.w[0], U).item() >= 1 - lambda_ * 0.5 - 1e-5


# Diagnostics


def test_weights_are_the_shares_of_the_messages_in_the_direction() -> None:
    rdpfl = method(lambda_=1.0)
    state = start(rdpfl, torch.zeros(2))
    inspection = stats(rdpfl, state, trained(-U), say(NEAR, FAR))
    assert inspection.distance_to_own == pytest.approx([1.0, 50.0])
    assert inspection.distance_to_predicted is None
    assert inspection.weight == pytest.approx([0.5, 0.5 * 1.5 / 50])
    d = -run(rdpfl, [say(NEAR, FAR)])[0].w[0] - U
    near, far = inspection.weight
    torch.testing.assert_close(d, near * NEAR + far * FAR + (1 - near - far) * U)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_messages_have_no_weight_for_a_client_that_has_diverged(name: str) -> None:
    rdpfl = method(aggregator=AGGREGATORS[name])
    state = start(rdpfl, torch.zeros(2))
    for own in (torch.tensor([torch.nan, 0.0]), torch.tensor([torch.inf, 0.0])):
        inspection = stats(rdpfl, state, trained(own), say(NEAR, FAR, U))
        assert inspection.weight == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("attack", ["adaptive", "sign_flip"])
def test_run_under_attack_records_clipped_messages_and_their_weights(attack: str) -> None:
    summary = simulate(
        small_scenario(
            topology="complete",
            method={"name": "anchored", "lambda": 1.0},
            adversary={"ids": [1, 2], "attack": attack},
        )
    ).summary
    told = summary["telemetry"]["rounds"]["all"]
    assert 0 < told["clipped"] <= 1
    assert 0 < told["byzantine_weight"] <= 1
