from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import pairwise
from math import exp, isnan, log
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.models import FlatModel, cnn, mlp, softmax
from rdpfl_sim.learning.training import OwnBatch, batches, constant, cosine, num_local_steps, step, train

briefly = partial(train, num_steps=3, batch_size=8, learning_rate=0.1, momentum=0.9, weight_decay=0.1, seed=1)


def shard_of(shape: list[int], num_samples: int = 21, num_classes: int = 4) -> Shard:
    """Every second example of a random data set."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * num_samples, *shape, generator=generator)
    y = torch.randint(num_classes, (2 * num_samples,), generator=generator)
    return Shard(x, y, torch.arange(0, 2 * num_samples, 2))


def plain_training(
    module: nn.Module,
    shard: Shard,
    num_steps: int,
    batch_size: int,
    seed: int,
    clip_norm: float | None = None,
    optimiser: torch.optim.SGD | None = None,
    **sgd: Any,
) -> float:
    """Train with a plain torch loop on the same batches; return the mean loss."""
    optimiser = optimiser or torch.optim.SGD(module.parameters(), **sgd)
    losses = []
    for positions in batches(len(shard), batch_size, num_steps, seed):
        rows = shard.indices[positions]
        optimiser.zero_grad()
        loss = cross_entropy(module(shard.x[rows]), shard.y[rows])
        torch.autograd.backward(loss)
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
        optimiser.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    "sgd",
    [
        {},
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"momentum": 0.5, "weight_decay": 0.01},
        {"clip_norm": 0.3, "weight_decay": 0.1},
        {"clip_norm": 1e6},
    ],
    ids=str,
)
@pytest.mark.parametrize("build", [cnn, mlp, softmax])
def test_training_equals_a_plain_module_with_torch_sgd(
    build: Callable[[list[int], int], nn.Module], sgd: dict[str, float]
) -> None:
    shape = [3, 8, 8]
    torch.manual_seed(0)  # with other weights, a tie within rounding may choose another maximum of a pool
    shard, module = shard_of(shape), build(shape, 4)
    plain, model = deepcopy(module), FlatModel(lambda: module)
    w = model.vector.clone()
    trained_w, mean_loss = train(model, w, shard, num_steps=7, batch_size=8, learning_rate=0.1, seed=3, **sgd)
    loss = plain_training(plain, shard, num_steps=7, batch_size=8, seed=3, lr=0.1, **sgd)
    torch.testing.assert_close(trained_w, model.flatten(plain))
    assert mean_loss == pytest.approx(loss, rel=1e-5)
    assert not torch.allclose(trained_w, w)


def test_velocity_continues_over_calls_as_with_one_optimiser() -> None:
    shard, module = shard_of([5]), mlp([5], 4)
    plain, model = deepcopy(module), FlatModel(lambda: module)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    w, velocity = model.vector.clone(), torch.zeros_like(model.vector)
    for round_ in range(4):
        optimiser.param_groups[0]["lr"] = 0.1 / (1 + round_)
        w, _ = train(
            model,
            w,
            shard,
            num_steps=3,
            batch_size=8,
            learning_rate=0.1 / (1 + round_),
            momentum=0.9,
            velocity=velocity,
            weight_decay=0.1,
            seed=round_,
        )
        plain_training(plain, shard, num_steps=3, batch_size=8, seed=round_, optimiser=optimiser)
    torch.testing.assert_close(w, model.flatten(plain))
    assert not torch.allclose(briefly(model, model.flatten(plain), shard)[0], w)


def test_velocity_of_another_mask_moves_no_entry_outside_the_mask() -> None:
    shard, model = shard_of([5]), FlatModel(lambda: softmax([5], 4))
    w, mask = model.initial(0), torch.arange(24) % 2 == 0
    velocity = torch.ones(24)
    trained_w, _ = briefly(model, w, shard, velocity=velocity, mask=mask)
    assert torch.equal(trained_w[~mask], w[~mask])
    assert not (trained_w == w)[mask].any()


def test_training_in_bfloat16_is_repeatable_close_to_float32_and_returns_float32() -> None:
    shard, model = shard_of([3, 8, 8]), FlatModel(lambda: cnn([3, 8, 8], 4))
    w = model.initial(0)
    exact, loss = briefly(model, w, shard)
    rounded, rounded_loss = briefly(model, w, shard, precision="bfloat16")
    again, _ = briefly(model, w, shard, precision="bfloat16")
    assert torch.equal(rounded, again)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    assert rounded_loss == pytest.approx(loss, rel=0.02)
    assert (rounded - exact).norm() < 0.05 * (exact - w).norm()


def test_every_step_in_bfloat16_uses_the_weights_of_the_step_before() -> None:
    shard, model = shard_of([5], num_samples=8), FlatModel(lambda: softmax([5], 4))
    w = model.initial(0)
    two_steps, _ = train(
        model, w, shard, num_steps=2, batch_size=8, learning_rate=5.0, precision="bfloat16", seed=1
    )
    whole = {"num_steps": 1, "batch_size": 8, "learning_rate": 5.0, "precision": "bfloat16"}
    for seed in (1, 2):  # batches of the whole shard, up to the order of their sums
        w, _ = train(model, w, shard, seed=seed, **whole)
    torch.testing.assert_close(two_steps, w, rtol=0.02, atol=0.02)


def test_learning_rate_schedules_by_hand() -> None:
    assert [constant(t, 5) for t in range(5)] == [1.0] * 5
    assert [constant(t, 5, warmup=4) for t in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [step(t, 6, every=2, factor=0.5) for t in range(6)] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    assert [step(t, 6, every=2, factor=0.5, warmup=2) for t in range(6)] == [0.5, 1.0, 1.0, 1.0, 0.5, 0.5]
    # cos 0 = 1, cos pi / 2 = 0, cos pi = -1
    assert [cosine(t, 3, floor=0.2) for t in range(3)] == [1.0, 0.6, 0.2]
    assert [cosine(t, 5, floor=0.2, warmup=2) for t in range(5)] == [0.5, 1.0, 1.0, 0.6, 0.2]
    assert [cosine(t, 3, floor=0.2) for t in (3, 9)] == [0.2, 0.2]
    assert cosine(0, 1) == 1.0


@given(st.integers(0, 300), st.integers(1, 300), st.integers(0, 300), st.floats(1e-9, 1))
def test_factors_of_a_schedule_are_positive_and_at_most_one(
    t: int, rounds: int, warmup: int, least: float
) -> None:
    assert 0 < constant(t, rounds, warmup=warmup) <= 1
    assert 0 < cosine(t, rounds, floor=least, warmup=warmup) <= 1
    assert 0 < step(t, rounds, every=50, factor=least, warmup=warmup) <= 1


def test_one_step_by_hand() -> None:
    # Zero weights give probabilities (1/2, 1/2), so the gradient is x (p - e_y) for W and p - e_y for b.
    shard = Shard(torch.tensor([[2.0]]), torch.tensor([1]), torch.tensor([0]))
    trained_w, loss = train(
        FlatModel(lambda: softmax([1], 2)),
        torch.zeros(4),
        shard,
        num_steps=1,
        batch_size=5,
        learning_rate=0.1,
        seed=0,
    )
    torch.testing.assert_close(trained_w, torch.tensor([-0.1, 0.1, -0.05, 0.05]))
    assert loss == pytest.approx(0.6931472)


@pytest.mark.parametrize(
    ("num_samples", "local_epochs", "local_steps", "expected"),
    [(64, 1, None, 1), (65, 1, None, 2), (1, 1, None, 1), (130, 3, None, 9), (130, 3, 5, 5)],
)
def test_local_steps_are_given_or_the_batches_of_the_epochs(
    num_samples: int, local_epochs: int, local_steps: int | None, expected: int
) -> None:
    assert num_local_steps(num_samples, 64, local_epochs, local_steps) == expected


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 5), st.integers(0, 2**64 - 1))
def test_epochs_are_permutations_whose_last_batch_is_the_remainder(
    num_samples: int, batch_size: int, num_epochs: int, seed: int
) -> None:
    num_steps = num_local_steps(num_samples, batch_size, num_epochs)
    drawn = list(batches(num_samples, batch_size, num_steps, seed))
    assert len(drawn) == num_steps
    assert all(len(batch) == batch_size for batch in drawn if len(batch) != num_samples % batch_size)
    for epoch in torch.split(torch.cat(drawn), num_samples):
        assert sorted(epoch.tolist()) == list(range(num_samples))


def test_epochs_differ() -> None:
    epochs = torch.split(torch.cat(list(batches(50, 10, num_steps=20, seed=0))), 50)
    assert all(not torch.equal(a, b) for a, b in pairwise(epochs))


def test_local_steps_may_end_within_an_epoch() -> None:
    assert [len(batch) for batch in batches(5, 2, num_steps=5, seed=0)] == [2, 2, 1, 2, 2]


def test_the_same_seed_trains_the_same_model() -> None:
    def weights(seed: int) -> Tensor:
        model = FlatModel(lambda: mlp([5], 4))
        return briefly(model, model.initial(0), shard_of([5]), seed=seed)[0]

    assert torch.equal(weights(seed=1), weights(seed=1))
    assert not torch.equal(weights(seed=1), weights(seed=2))


def test_a_shared_model_keeps_no_state_between_clients() -> None:
    shard = shard_of([5])
    model = FlatModel(lambda: mlp([5], 4))
    w = model.initial(0)
    first = briefly(model, w, shard)[0]
    briefly(model, torch.full_like(w, torch.nan), shard)
    assert torch.equal(briefly(model, w, shard)[0], first)


def test_training_changes_neither_its_inputs_nor_earlier_results() -> None:
    shard = shard_of([5])
    model = FlatModel(lambda: mlp([5], 4))
    w = model.initial(0)
    before = [t.clone() for t in (w, shard.x, shard.y, shard.indices)]
    trained_w, _ = briefly(model, w, shard)
    result = trained_w.clone()
    briefly(model, w, shard)
    assert torch.equal(trained_w, result)
    assert all(torch.equal(a, b) for a, b in zip(before, (w, shard.x, shard.y, shard.indices), strict=True))


def test_training_does_not_change_the_global_generator() -> None:
    model, shard = FlatModel(lambda: mlp([5], 4)), shard_of([5])
    state = torch.get_rng_state()
    briefly(model, model.initial(0), shard)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_shard_is_trained_on_its_own_examples_only() -> None:
    shard = shard_of([5])
    poisoned_x, poisoned_y = shard.x.clone(), shard.y.clone()
    poisoned_x[1::2], poisoned_y[1::2] = torch.nan, 3
    model = FlatModel(lambda: softmax([5], 4))
    w = model.initial(0)

    def weights(s: Shard) -> Tensor:
        return briefly(model, w, s, num_steps=6)[0]

    assert torch.equal(weights(shard), weights(Shard(poisoned_x, poisoned_y, shard.indices)))


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, 1e38])
def test_training_of_a_diverged_model_continues_without_an_error(poison: float) -> None:
    shard = shard_of([3, 8, 8])
    model = FlatModel(lambda: cnn([3, 8, 8], 4))
    w = torch.full((model.num_parameters,), poison)
    _, loss = briefly(model, w, shard)
    assert isinstance(loss, float)
    assert not loss < 1e30  # nan or very large


def test_a_client_without_examples_cannot_train() -> None:
    shard = shard_of([5])
    empty = Shard(shard.x, shard.y, shard.indices[:0])
    model = FlatModel(lambda: softmax([5], 4))
    with pytest.raises(AssertionError, match="without examples"):
        briefly(model, model.initial(0), empty)


# Modified steps: a mask, a proximal centre, another momentum.

plainly = partial(train, num_steps=5, batch_size=8, learning_rate=0.1, seed=1)


def by_autograd(
    model: FlatModel, w: Tensor, shard: Shard, momentum: float, loss_of: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Heavy-ball steps along autograd's gradient of an explicit loss of the flat vector and the examples."""
    before = w
    for positions in batches(len(shard), 8, 5, seed=1):
        at = w.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss_of(at, shard.indices[positions]), at)
        w, before = w - 0.1 * gradient + momentum * (w - before), w
    return w


def linear_loss(shard: Shard) -> Callable[[Tensor, Tensor], Tensor]:
    """The cross-entropy of logistic regression with 5 inputs and 4 classes, written out."""

    def loss(w: Tensor, rows: Tensor) -> Tensor:
        return cross_entropy(shard.x[rows] @ w[:20].view(4, 5).T + w[20:], shard.y[rows])

    return loss


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_proximal_term_is_the_gradient_of_half_a_squared_distance(momentum: float) -> None:
    shard, model = shard_of([5]), FlatModel(lambda: softmax([5], 4))
    w, centre, plain = model.initial(0), model.initial(1), linear_loss(shard)
    trained_w, _ = plainly(
        model, w, shard, momentum=momentum, weight_decay=0.2, proximal_to=centre, proximal_mu=0.7
    )
    expected = by_autograd(
        model,
        w,
        shard,
        momentum,
        lambda v, rows: plain(v, rows) + 0.2 / 2 * v.square().sum() + 0.7 / 2 * (v - centre).square().sum(),
    )
    torch.testing.assert_close(trained_w, expected)
    assert not torch.allclose(trained_w, plainly(model, w, shard, momentum=momentum)[0])


def test_reported_loss_is_the_cross_entropy_without_the_proximal_term() -> None:
    shard, model = shard_of([5]), FlatModel(lambda: softmax([5], 4))
    w = model.initial(0)
    _, one = plainly(model, w, shard, num_steps=1)
    _, proximal = plainly(model, w, shard, num_steps=1, proximal_to=model.initial(1), proximal_mu=100.0)
    assert proximal == one


def test_strong_proximal_term_leads_to_its_centre() -> None:
    shard, model = shard_of([5]), FlatModel(lambda: softmax([5], 4))
    centre = model.initial(1)
    trained_w, _ = plainly(model, model.initial(0), shard, num_steps=60, proximal_to=centre, proximal_mu=9.0)
    assert (trained_w - centre).norm() < 0.2 * (model.initial(0) - centre).norm()


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_entries_outside_the_mask_are_unchanged_and_the_others_train_as_if_those_were_constant(
    momentum: float,
) -> None:
    shard, model = shard_of([5]), FlatModel(lambda: softmax([5], 4))
    w, plain = model.initial(0), linear_loss(shard)
    mask = torch.rand(24, generator=torch.Generator().manual_seed(3)) < 0.5
    options: dict[str, Any] = {
        "momentum": momentum,
        "weight_decay": 0.2,
        "proximal_to": model.initial(1),
        "proximal_mu": 0.3,
    }
    trained = plainly(model, w, shard, mask=mask, **options)[0]
    assert torch.equal(trained[~mask], w[~mask])

    def loss(v: Tensor, rows: Tensor) -> Tensor:
        v = torch.where(mask, v, w)
        return plain(v, rows) + 0.1 * v.square().sum() + 0.15 * (v - model.initial(1)).square().sum()

    torch.testing.assert_close(trained, by_autograd(model, w, shard, momentum, loss))


def test_mask_excludes_gradients_that_are_nan() -> None:
    shard, model = shard_of([5]), FlatModel(lambda: softmax([5], 4))
    w = model.initial(0)
    w[0] = torch.nan
    trained = plainly(model, w, shard, mask=torch.zeros(24, dtype=torch.bool))[0]
    assert torch.equal(trained.isnan(), w.isnan())
    assert torch.equal(trained[1:], w[1:])


def test_full_mask_and_zero_proximal_mu_are_plain_training_to_the_bit() -> None:
    shard, model = shard_of([5]), FlatModel(lambda: mlp([5], 4))
    w = model.initial(0)
    everything = torch.ones(model.num_parameters, dtype=torch.bool)
    changed_w, _ = briefly(model, w, shard, mask=everything, proximal_to=w * 3, proximal_mu=0.0)
    assert torch.equal(changed_w, briefly(model, w, shard)[0])


# A batch of the client's own examples.


def test_own_batch_returns_logits_loss_and_gradient_of_any_model() -> None:
    # W = (1, 0), b = (0, 0) and x = 1, -1: logits (1, 0) and (-1, 0), labels 0 and 0.
    batch = OwnBatch(FlatModel(lambda: softmax([1], 2)), torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 0]))
    w = torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert batch.logits(w).tolist() == [[1.0, 0.0], [-1.0, 0.0]]
    p = 1 / (1 + exp(-1))  # of class 0 for the first example, and of class 1 for the second
    assert batch.loss(w) == pytest.approx(-(log(p) + log(1 - p)) / 2)
    # d loss / d logits = p - e_y: (p - 1, 1 - p) and (-p, p), times x for the weights, halved by the mean.
    assert batch.gradient(w).tolist() == pytest.approx([(2 * p - 1) / 2, (1 - 2 * p) / 2, -0.5, 0.5])


def test_own_batch_returns_new_tensors_and_stores_no_gradient() -> None:
    shard, model = shard_of([5]), FlatModel(lambda: mlp([5], 4))
    x, labels = shard.take(torch.arange(9))
    batch, w = OwnBatch(model, x, labels), model.initial(0)
    trained = briefly(model, w, shard)[0]
    first = batch.gradient(w)
    kept = first.clone()
    batch.gradient(model.initial(1))
    assert torch.equal(first, kept)
    assert torch.equal(batch.gradient(w), kept)
    assert not batch.logits(w).requires_grad
    assert torch.equal(briefly(model, w, shard)[0], trained)


def test_loss_of_a_diverged_model_is_nan() -> None:
    shard, model = shard_of([5]), FlatModel(lambda: mlp([5], 4))
    x, labels = shard.take(torch.arange(9))
    assert isnan(OwnBatch(model, x, labels).loss(torch.full((model.num_parameters,), torch.nan)))
