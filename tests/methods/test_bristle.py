from math import nan

import pytest
import torch
from torch import Tensor

from rdpfl_sim import ScenarioError
from rdpfl_sim.learning.models import MODELS, FlatModel, softmax
from rdpfl_sim.learning.training import OwnBatch
from rdpfl_sim.methods.base import ClientView, Layer, RunInfo
from rdpfl_sim.methods.batching import Received
from rdpfl_sim.methods.bristle import Bristle, f1_by_class, mixed_rows
from rdpfl_sim.simulation.experiment import Experiment
from tests.methods.one_client import client, inbox, messages, send, start, stats, update
from tests.registries import temporary_components
from tests.support import small_scenario, trained

SETTINGS = RunInfo(10, [Layer("1.weight", 0, (3, 1)), Layer("1.bias", 3, (3,))])
"""Logistic regression with one input and three classes; the output layer is the whole model."""

CLASS_OF = {
    "always 0": [0, 0, 0, 1.0, 0, 0],
    "always 1": [0, 0, 0, 0, 1.0, 0],
    "right": [1.0, -1.0, 0, 0, 0, 0],
}


def home(labels: tuple[int, ...] = (0, 0, 1)) -> ClientView:
    """Examples 1, 1 and -1: class 0 where the number is positive."""
    batch = OwnBatch(
        FlatModel(lambda: softmax([1], 3)), torch.tensor([[1.0], [1.0], [-1.0]]), torch.tensor(labels)
    )
    return client(batch=batch)


def model(name: str) -> Tensor:
    return torch.tensor(CLASS_OF[name])


def received(*vectors: Tensor, weight: float = 1.0) -> list[Received]:
    return messages(*vectors, weights=[weight] * len(vectors))


def class_weights(keep: float, x: Tensor, told: list[Received], view: ClientView) -> Tensor:
    return Bristle(SETTINGS, keep=keep).class_weights(x, inbox(told, 6), view)


def test_f1_of_every_class() -> None:
    # Predicted 0, 0, 0, 1; actual 0, 0, 1, 1: F1 = 4 / 5 and 2 / 3; class 2 is neither.
    logits = torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]])
    assert f1_by_class(logits, torch.tensor([0, 0, 1, 1])).tolist() == pytest.approx([4 / 5, 2 / 3, 0.0])


@pytest.mark.parametrize("broken", [nan, float("inf")])
def test_prediction_that_is_not_finite_is_ignored(broken: float) -> None:
    # argmax would return a class. Of two examples of class 0, one is predicted: F1 = 2 * 1 / (1 + 2).
    logits = torch.tensor([[broken, 0.0], [1.0, 0.0]])
    assert f1_by_class(logits, torch.tensor([0, 0])).tolist() == pytest.approx([2 / 3, 0.0])


def test_rows_are_weighted_by_their_f1_class_by_class() -> None:
    # On labels 0, 0, 1: "always 0" has F1 2*2/(3+2) = 0.8, 0; "always 1" 0, 2*1/(3+1) = 0.5; "right" 1, 1.
    trust = class_weights(1.0, model("always 0"), received(model("always 1"), model("right")), home())
    # Class 2 is foreign: the neighbours' mean F1 over classes 0 and 1 is 0.25 and 1, and the own has none.
    expected = [[0.8 / 1.8, 0.0, 0.0], [0.0, 0.5 / 1.5, 0.25 / 1.25], [1 / 1.8, 1 / 1.5, 1 / 1.25]]
    assert torch.allclose(trust, torch.tensor(expected, dtype=torch.float64))


def test_update_mixes_rows_and_biases_and_inspect_returns_the_mean_weights() -> None:
    method, own = Bristle(SETTINGS, keep=1.0), trained(model("always 0"))
    state = start(method, torch.zeros(6), home())
    told = received(model("always 1"), model("right"))
    new, report = update(method, state, own, told, home())
    expected = [1 / 1.8, -1 / 1.5, 0.0, 0.8 / 1.8, 0.5 / 1.5, 0.0]
    assert new.w[0].tolist() == pytest.approx(expected)
    assert report["num_accepted"] == 2
    inspection = stats(method, state, own, told, home())
    assert inspection.weight == pytest.approx([(1 / 3 + 1 / 5) / 3, (1 / 1.8 + 1 / 1.5 + 0.8) / 3])
    assert inspection.distance_to_own == pytest.approx([2**0.5, 3**0.5])


def test_only_the_nearest_models_are_scored() -> None:
    told = received(model("right") * 100, model("always 1"), model("right"))
    trust = class_weights(0.5, model("always 0"), told, home())
    assert [bool(row.any()) for row in trust[1:]] == [False, True, True]  # ceil(0.5 * 3) = 2


def test_own_rows_are_used_if_no_model_predicts_correctly() -> None:
    # All examples are of class 1, and both models predict 0: F1 is 0 for every model and class.
    trust = class_weights(1.0, model("always 0"), received(model("always 0")), home((1, 1, 1)))
    assert trust.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


def test_weight_lost_by_a_stale_message_goes_to_the_own_row_even_for_foreign_classes() -> None:
    trust = class_weights(1.0, model("always 0"), received(model("right"), weight=0.25), home())
    assert trust[1].tolist() == pytest.approx([0.25 / 1.8, 0.25, 0.25])
    assert trust.sum(dim=0).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_no_message_and_a_diverged_own_model_change_nothing() -> None:
    method = Bristle(SETTINGS)
    state = start(method, torch.zeros(6), home())
    own = trained(model("right"))
    assert update(method, state, own, [], home())[0].w is own.w
    broken = trained(torch.full((6,), nan))
    assert update(method, state, broken, received(model("right")), home())[0].w is broken.w
    assert stats(method, state, broken, received(model("right")), home()).weight == [0.0]


def test_largest_numbers_with_correct_predictions_do_not_overflow() -> None:
    largest = torch.finfo(torch.float32).max
    head = torch.tensor([0.0, 0.0, 0.0, largest, 0.0, 0.0])
    told = received(*[head] * 7)
    new, _ = update(
        Bristle(SETTINGS, keep=1.0),
        start(Bristle(SETTINGS), torch.zeros(6), home()),
        trained(model("always 1")),
        told,
        home((0, 0, 0)),
    )
    assert torch.isfinite(new.w).all()
    assert new.w[0, 3] > 1e38


def test_body_is_frozen_or_trained_but_never_sent() -> None:
    layers = [
        Layer("1.weight", 0, (2, 1)),
        Layer("1.bias", 2, (2,)),
        Layer("3.weight", 4, (2, 2)),
        Layer("3.bias", 8, (2,)),
    ]
    frozen, local = (Bristle(RunInfo(10, layers), body=body) for body in ("frozen", "local"))
    state = start(frozen, torch.zeros(10), home())
    assert frozen.training(state).mask[0].tolist() == [False] * 4 + [True] * 6
    assert local.training(state).mask is None
    _, payload = send(frozen, state, trained(torch.arange(10.0)), home())
    assert payload.vector.tolist() == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert payload.size_bytes == 24
    assert frozen.reference_point(state)[0].tolist() == [0.0] * 6


def test_mixed_rows_by_hand() -> None:
    # Two classes, rows of two: weights (0.25, 0.75) for the first class and (1, 0) for the second.
    heads = torch.tensor([[1.0, 2, 3, 4, 5, 6], [10.0, 20, 30, 40, 50, 60]])
    trust = torch.tensor([[0.25, 1.0], [0.75, 0.0]], dtype=torch.float64)
    assert mixed_rows(heads, trust).tolist() == [7.75, 15.5, 3.0, 4.0, 38.75, 6.0]


def test_output_layer_without_biases_is_an_error() -> None:
    with temporary_components():

        @MODELS.register
        def unbiased(shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
            return torch.nn.Linear(shape[0], num_classes, bias=False)

        with pytest.raises(ScenarioError) as caught:
            Experiment(small_scenario(model="unbiased", method="bristle"))
    [problem] = caught.value.problems
    assert problem.path == "method"
    assert "needs an output layer with weights and biases" in problem.message
