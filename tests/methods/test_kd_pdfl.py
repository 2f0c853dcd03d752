from math import exp, log, nan

import pytest
import torch
from torch.nn.functional import log_softmax

from rdpfl_sim.learning.models import FlatModel, softmax
from rdpfl_sim.learning.training import OwnBatch
from rdpfl_sim.methods.base import ClientView, RunInfo
from rdpfl_sim.methods.kd_pdfl import KdPdfl, divergence, wasserstein
from tests.methods.one_client import client, inbox, messages, start, stats, update
from tests.support import trained

SETTINGS = RunInfo(rounds=10)
UNDECIDED = [0.0, 0.0, 0.0, 0.0]
"""Weights (2, 1) and biases (2,) of a model whose prediction is always (1/2, 1/2)."""
THREE_TO_ONE = [0.0, 0.0, log(3), 0.0]


def home() -> ClientView:
    """A client with two examples, 1 and -1."""
    batch = OwnBatch(FlatModel(lambda: softmax([1], 2)), torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]))
    return client(batch=batch)


def shares(method: KdPdfl, x: list[float], *others: list[float], weight: float = 1.0) -> list[float]:
    received = inbox(messages(*others, weights=[weight] * len(others)), 4)
    [found] = method.granted_shares(torch.tensor([x]), received, [home()]).tolist()
    return found


def test_similar_models_count_more() -> None:
    # Predictions (1/2, 1/2) and (3/4, 1/4) differ by 1/4 in each class: similarity exp(-1), against 1 and 1.
    method = KdPdfl(SETTINGS, temperature=1.0, scale=0.25)
    total = 2 + exp(-1)
    assert shares(method, UNDECIDED, UNDECIDED, THREE_TO_ONE) == pytest.approx([1 / total, exp(-1) / total])


def test_update_mixes_by_these_shares_and_inspect_returns_them() -> None:
    method, own = KdPdfl(SETTINGS, temperature=1.0, scale=0.25), trained(torch.zeros(4))
    received = messages(THREE_TO_ONE)
    state = start(method, torch.zeros(4), home())
    share = exp(-1) / (1 + exp(-1))
    new, report = update(method, state, own, received, home())
    assert new.w[0].tolist() == pytest.approx([0.0, 0.0, share * log(3), 0.0])
    inspection = stats(method, state, own, received, home())
    assert inspection.weight == pytest.approx([share])
    assert inspection.distance_to_own == pytest.approx([log(3)])
    assert report["num_accepted"] == 1


def test_temperature_softens_the_predictions() -> None:
    # At temperature 2 the odds are sqrt(3) to 1.
    p = 3**0.5 / (1 + 3**0.5)
    method = KdPdfl(SETTINGS, temperature=2.0, scale=1.0)
    similar = exp(-(p - 0.5))
    assert shares(method, UNDECIDED, THREE_TO_ONE) == pytest.approx([similar / (1 + similar)])


def test_divergence_is_that_of_kullback_and_leibler_from_the_own_predictions() -> None:
    method = KdPdfl(SETTINGS, distance="kl", temperature=1.0, scale=1.0)
    similar = exp(-(0.5 * log(0.5 / 0.75) + 0.5 * log(0.5 / 0.25)))
    assert shares(method, UNDECIDED, THREE_TO_ONE) == pytest.approx([similar / (1 + similar)])


def test_wasserstein_compares_a_class_over_the_batch_and_divergence_example_by_example() -> None:
    # The two models give the same probabilities to other examples.
    one, other = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log(), torch.tensor([[0.2, 0.8], [0.9, 0.1]]).log()
    assert wasserstein(one, other) == 0.0
    assert divergence(one, other) == pytest.approx(
        (0.9 * log(0.9 / 0.2) + 0.1 * log(0.1 / 0.8) + 0.2 * log(0.2 / 0.9) + 0.8 * log(0.8 / 0.1)) / 2
    )


def test_stale_model_counts_less() -> None:
    assert shares(KdPdfl(SETTINGS), UNDECIDED, UNDECIDED, weight=0.5) == pytest.approx([0.5 / 1.5])


def test_model_with_non_finite_predictions_and_distant_model_have_no_share() -> None:
    method = KdPdfl(SETTINGS, temperature=1.0, scale=1e-3)
    infinite = [3e38, -3e38, 3e38, -3e38]  # at 1 the logits overflow, at -1 they are inf - inf
    assert shares(method, UNDECIDED, infinite, THREE_TO_ONE) == [0.0, pytest.approx(0.0, abs=1e-90)]


def test_diverged_own_model_ignores_all_messages() -> None:
    assert shares(KdPdfl(SETTINGS), [nan, 0.0, 0.0, 0.0], UNDECIDED) == [0.0]


@pytest.mark.parametrize("distance", ["wasserstein", "kl"])
def test_tiny_scale_does_not_change_equal_models_despite_rounding(distance: str) -> None:
    # Rounding may make the divergence of equal predictions -1e-8; divided by the scale, it must not overflow.
    method = KdPdfl(SETTINGS, distance=distance, temperature=1.0, scale=1e-30)
    generator = torch.Generator().manual_seed(0)
    rounded = 0
    for _ in range(50):
        x = torch.randn(4, generator=generator)
        near = x + 1e-7 * torch.randn(4, generator=generator)
        [share] = shares(method, x.tolist(), near.tolist())
        assert 0.0 <= share <= 0.5
        batch = home().batch()
        rounded += divergence(log_softmax(batch.logits(x), 1), log_softmax(batch.logits(near), 1)) < 0
    assert rounded > 0, "rounding never made a divergence negative, so nothing was tested"
