from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from rdpfl_sim.learning import evaluation
from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.evaluation import evaluate
from rdpfl_sim.learning.models import FlatModel, softmax
from rdpfl_sim.learning.training import train

# One feature, two classes, logits (0, x): positive examples are class 1.
MODEL_W = torch.tensor([0.0, 1.0, 0.0, 0.0])
X = torch.tensor([[1.0], [2.0], [-1.0], [-3.0], [5.0]])
Y = torch.tensor([1, 0, 0, 0, 1])
EVERYTHING = torch.arange(5)


def model() -> FlatModel:
    return FlatModel(lambda: softmax([1], 2))


@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
def test_accuracy_and_loss_are_means_over_examples_for_any_batch_size(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "BATCH_SIZE", batch_size)
    result = evaluate(model(), MODEL_W, Shard(X, Y, EVERYTHING))
    # -log softmax: log(1 + exp(-x)) where the label agrees with the sign of x, else log(1 + exp(|x|)).
    margins = [1, -2, 1, 3, 5]
    assert result.accuracy == 0.8
    assert result.loss == pytest.approx(sum(math.log1p(math.exp(-m)) for m in margins) / 5)
    assert result.num_samples == 5


def test_only_the_examples_of_the_shard_count() -> None:
    result = evaluate(model(), MODEL_W, Shard(X, Y, torch.tensor([0, 1])))
    assert (result.accuracy, result.num_samples) == (0.5, 2)


def test_evaluation_changes_no_input() -> None:
    w = MODEL_W.clone()
    evaluate(model(), w, Shard(X, Y, EVERYTHING))
    assert torch.equal(w, MODEL_W)


def test_a_nan_model_has_zero_accuracy_and_no_finite_loss() -> None:
    result = evaluate(model(), torch.full((4,), torch.nan), Shard(X, Y, EVERYTHING))
    assert result.accuracy == 0.0
    assert math.isnan(result.loss)


def test_a_model_can_be_trained_after_it_was_evaluated() -> None:
    shared, shard = model(), Shard(X, Y, EVERYTHING)
    briefly = partial(train, num_steps=2, batch_size=3, learning_rate=0.1, seed=0)
    expected = briefly(model(), MODEL_W, shard)[0]
    evaluate(shared, MODEL_W, shard)
    assert torch.equal(briefly(shared, MODEL_W, shard)[0], expected)
