import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rdpfl_sim.aggregators import AGGREGATORS, mean
from rdpfl_sim.methods.base import RunInfo
from rdpfl_sim.methods.batching import Received
from rdpfl_sim.methods.rdpfl import Rdpfl
from rdpfl_sim.vectors import norm
from tests.methods.one_client import message, messages, send, start, update
from tests.support import trained

SETTINGS = RunInfo(rounds=100)


def method(**options) -> Rdpfl:
    return Rdpfl(SETTINGS, **{"lambda_": 0.5, "aggregator": mean, **options})


def one(*entries: float) -> list[Received]:
    return [message(list(entries))]


def run(rdpfl: Rdpfl, observations: list[list[Received]], drift: float = 0.0):
    """Run rounds in which local training moves the model by -drift."""
    state, reports = start(rdpfl, torch.zeros(2)), []
    for received in observations:
        state, report = update(rdpfl, state, trained(state.w[0] - drift), received)
        reports.append(report)
    return state, reports


def test_direction_is_the_mean_gradient_of_the_local_steps() -> None:
    state = start(method(), torch.tensor([3.0, 1.0]))
    assert send(method(), state, trained(torch.tensor([1.0, 1.0])))[1].vector.tolist() == [2.0, 0.0]


def test_first_round_has_no_history_so_the_prediction_is_the_observation() -> None:
    state, [report] = run(method(), [one(3.0, 4.0)])
    # gamma = 1.0 * 0.5 * 2 = 1, u = 0, d = d_bar: w = -(0 + 0.5 (3, 4)).
    assert state.w[0].tolist() == [-1.5, -2.0]
    assert report["delta_norm"] == 0.0
    assert report["tau"] == pytest.approx(0.9)
    assert report["beta"] is None


def test_warm_up_clips_around_the_last_observation() -> None:
    state, [_, report] = run(method(), [one(3.0, 4.0), one(3.0, 14.0)])
    # Delta = (0, 10), tau = .9 * .9 + .1 * 1.5 * 0 = .81, d = (3, 4.81), bounded by 10.
    assert report["delta_norm"] == pytest.approx(10.0)
    assert report["tau"] == pytest.approx(0.81)
    assert report["clipped"] is True
    assert state.w[0].tolist() == pytest.approx([-3.0, -2.0 - 0.5 * 4.81])


def test_lagged_threshold_grows_one_round_after_the_deviation_and_the_current_one_immediately() -> None:
    observations = [one(0.0, 0.0), one(0.0, 10.0), one(0.0, 10.0)]
    lagged = [r["tau"] for r in run(method(), observations)[1]]
    current = [r["tau"] for r in run(method(threshold="current"), observations)[1]]
    assert lagged == pytest.approx([0.9, 0.81, 0.729 + 1.5])
    assert current == pytest.approx([0.9, 0.81 + 1.5, 0.9 * 2.31])


def test_prediction_after_the_warm_up_is_barzilai_borwein() -> None:
    rdpfl = method(warmup=2)
    state, _ = run(rdpfl, [one(1.0, 0.0), one(3.0, 0.0)], drift=1.0)
    # s = w_2 - w_1 and y = (2, 0); beta = <s, y> / |s|^2.
    [s] = state.w_1 - state.w_2
    beta = float(s[0] * 2 / s.dot(s))
    [d_hat], [reported] = rdpfl.predict(state, without_history=torch.zeros(1, 2))
    assert reported.item() == pytest.approx(beta)
    assert d_hat.tolist() == pytest.approx((torch.tensor([3.0, 0.0]) + beta * s).tolist())
    assert torch.equal(rdpfl.predicted_direction(state)[0], d_hat)


def test_beta_waits_for_two_observations_even_without_a_warm_up() -> None:
    _, reports = run(method(warmup=0), [one(1.0, 0.0), one(2.0, 0.0), one(3.0, 0.0)])
    assert [report["beta"] is None for report in reports] == [True, True, False]


def test_predictor_last_returns_the_last_observation() -> None:
    rdpfl = method(predictor="last", warmup=2)
    state, reports = run(rdpfl, [one(1.0, 0.0), one(2.0, 0.0), one(4.0, 0.0)], drift=1.0)
    assert rdpfl.predicted_direction(state)[0].tolist() == [4.0, 0.0]
    assert [report["beta"] for report in reports] == [None, None, None]


@pytest.mark.parametrize("ablation", [{"predictor": "none"}, {"clip": False}])
def test_both_ablations_of_the_paper_reduce_to_the_aggregate(ablation: dict) -> None:
    observations = [one(1.0, 0.0), one(0.0, 5.0), one(-4.0, 1.0)]
    state, _ = run(method(**ablation), observations)
    assert state.w[0].tolist() == pytest.approx([-0.5 * (1 + 0 - 4), -0.5 * (0 + 5 + 1)])


def test_literal_step_is_gamma_itself() -> None:
    state, _ = run(method(step=0.1), [one(1.0, 0.0)], drift=1.0)
    # u = drift / (eta K) = 1: w = -0.1 (1 + 0.5 * (1, 0)).
    assert state.w[0].tolist() == pytest.approx([-0.15, -0.1])


def test_lambda_zero_is_local_training() -> None:
    state, _ = run(method(lambda_=0.0), [one(7.0, 7.0)] * 3, drift=0.25)
    assert state.w[0].tolist() == pytest.approx([-0.75, -0.75])


def test_round_without_messages_uses_the_prediction_and_keeps_the_history() -> None:
    rdpfl = method()
    before, _ = run(rdpfl, [one(3.0, 4.0)])
    after, report = update(rdpfl, before, trained(before.w[0]), [])
    assert after.w[0].tolist() == pytest.approx((before.w[0] - 0.5 * torch.tensor([3.0, 4.0])).tolist())
    assert after.d_bar_1 is before.d_bar_1
    assert after.w_1 is before.w_1
    assert after.tau == before.tau
    assert report["d_norm"] == pytest.approx(5.0)


def test_round_without_messages_can_be_skipped_and_the_first_one_has_no_prediction() -> None:
    skipping = method(when_silent="skip")
    before, _ = run(skipping, [one(3.0, 4.0)])
    assert torch.equal(update(skipping, before, trained(before.w[0]), [])[0].w, before.w)
    assert run(method(), [[]])[0].w[0].tolist() == [0.0, 0.0]


def test_stale_message_counts_by_its_weight() -> None:
    received = [message([4.0, 8.0], 0.25)]
    assert run(method(), [received])[0].w[0].tolist() == [-0.5, -1.0]


hostile = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(
    st.sampled_from(sorted(AGGREGATORS)),
    st.sampled_from(["bb", "last", "none"]),
    st.lists(st.lists(st.lists(hostile, min_size=2, max_size=2), max_size=5), min_size=1, max_size=9),
)
def test_lemma_3_holds_and_the_model_stays_finite_for_any_messages(aggregator, predictor, rounds) -> None:
    rdpfl = method(aggregator=AGGREGATORS[aggregator], predictor=predictor, warmup=2)
    state = start(rdpfl, torch.zeros(2))
    for rows in rounds:
        received = messages(*rows)
        before = state.w
        state, report = update(rdpfl, state, trained(state.w[0]), received)
        assert report["d_norm"] <= rdpfl.max_norm * (1 + 1e-5)
        assert norm(state.w[0] - before[0]) <= 0.5 * rdpfl.max_norm * (1 + 1e-4)
        assert torch.isfinite(state.w).all()
