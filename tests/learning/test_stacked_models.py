"""Stacked models give the same results as single models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from rdpfl_sim import learning
from rdpfl_sim.execution.devices import deterministic_torch
from rdpfl_sim.learning import evaluation
from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.evaluation import Predictions, evaluate, evaluate_stacked
from rdpfl_sim.learning.models import FlatModel, cnn, mlp, softmax
from rdpfl_sim.learning.stacked import NotStackableError, StackedClient, StackedModel, train_stacked
from rdpfl_sim.learning.training import train

SIZES = [1, 3, 17, 40, 41, 9, 64]
MODELS = {
    "softmax": (lambda: softmax([5], 3), [5]),
    "mlp": (lambda: mlp([5], 3, hidden=[7, 4]), [5]),
    "cnn": (lambda: cnn([2, 6, 6], 3, width=3, hidden=5), [2, 6, 6]),
}


def shards(shape: list[int], augmented: bool = False) -> list[Shard]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(sum(SIZES), *shape, generator=generator)
    y = torch.randint(3, (sum(SIZES),), generator=generator)

    def shaken(batch: Tensor, variants: torch.Generator) -> Tensor:
        return batch + torch.randn(batch.shape, generator=variants)

    parts = torch.randperm(len(y), generator=generator).split(SIZES)
    return [Shard(x, y, part, shaken if augmented else None) for part in parts]


class Result(NamedTuple):
    """Result of one client's training."""

    w: Tensor
    direction: Tensor
    loss: float
    velocity: Tensor | None


def stacked_results(model: FlatModel, clients: Sequence[StackedClient], **settings) -> list[Result]:
    """Train clients in the order that `train_stacked` needs, and return their results in the given order."""
    order = sorted(range(len(clients)), key=lambda row: -clients[row].num_steps)
    trained = train_stacked(StackedModel(model), [clients[row] for row in order], **settings)
    velocities = [None] * len(clients) if trained.velocities is None else [*trained.velocities]
    columns = zip(trained.w, trained.directions, trained.losses, velocities, strict=True)
    results = dict(zip(order, map(Result, *zip(*columns, strict=True)), strict=True))
    return [results[row] for row in range(len(clients))]


def row(vector: Tensor | None) -> Tensor | None:
    return None if vector is None else vector[None]


def both_ways(
    name: str, augmented: bool = False, **options
) -> tuple[list[tuple[Tensor, float, Tensor | None]], list[Result]]:
    make, shape = MODELS[name]
    model, data = FlatModel(make), shards(shape, augmented)
    steps = [2 * -(-len(shard) // 8) for shard in data]
    starts = [model.initial(i) for i in range(len(data))]
    mask = torch.arange(model.num_parameters) % 3 > 0 if options.pop("masked", False) else None
    centres = [model.initial(99) if "proximal_mu" in options else None] * len(data)
    velocities = [w / 10 if options.get("velocity") else None for w in starts]
    options.pop("velocity", None)
    rates = [0.1 / (1 + i % 3) for i in range(len(data))]
    settings = {"batch_size": 8, **options}
    clients = [
        StackedClient(w[None], shard, k, i, rate, row(mask), row(centre), row(velocity))
        for i, (w, shard, k, rate, centre, velocity) in enumerate(
            zip(starts, data, steps, rates, centres, velocities, strict=True)
        )
    ]
    stacked = stacked_results(model, clients, **settings)
    single = []
    for client, w, centre, velocity in zip(clients, starts, centres, velocities, strict=True):
        options = {"mask": mask, "proximal_to": centre, "velocity": velocity, "seed": client.seed}
        of_client = {"num_steps": client.num_steps, "learning_rate": client.learning_rate}
        single.append((*train(model, w, client.shard, **of_client, **options, **settings), velocity))
    return single, stacked


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"proximal_mu": 0.5},
        {"masked": True, "momentum": 0.5},
        {"augmented": True},
        {"clip_norm": 0.4, "weight_decay": 0.1},
        {"momentum": 0.5, "velocity": True},
        {"momentum": 0.5, "velocity": True, "masked": True},
    ],
    ids=str,
)
def test_stacked_training_equals_single_training_up_to_rounding(name: str, options: dict) -> None:
    single, stacked = both_ways(name, **options)
    for (w, loss, velocity), other in zip(single, stacked, strict=True):
        torch.testing.assert_close(w, other.w, rtol=1e-4, atol=1e-6)
        assert other.loss == pytest.approx(loss, rel=1e-4)
        if velocity is not None:
            torch.testing.assert_close(velocity, other.velocity, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "mlp"])
@pytest.mark.parametrize("batch_size", [1, 5, 16, 33])
def test_a_clients_numbers_do_not_depend_on_the_other_clients(name: str, batch_size: int) -> None:
    make, shape = MODELS[name]
    model, data = FlatModel(make), shards(shape)
    clients = [
        StackedClient(model.initial(i)[None], shard, 1 + i % 3, i, 0.1 / (1 + i % 4))
        for i, shard in enumerate(data * 3)
    ]
    settings = {"batch_size": batch_size, "clip_norm": 0.5}
    all_trained = stacked_results(model, clients, **settings)
    for size in (1, 2, 5):
        for start in range(0, len(clients), size):
            some = stacked_results(model, clients[start : start + size], **settings)
            for one, other in zip(some, all_trained[start:], strict=False):
                assert torch.equal(one.w, other.w)
                assert one.loss == other.loss


LARGE = {
    "softmax": (lambda: softmax([3072], 10), [3072], 33),
    "wide": (lambda: mlp([64], 10, hidden=[512]), [64], 64),
    "deep": (lambda: mlp([33], 10, hidden=[100, 50, 20]), [33], 16),
    "cnn": (lambda: cnn([3, 8, 8], 10, width=4, hidden=16), [3, 8, 8], 16),
    "long batch": (lambda: softmax([2], 3), [2], 33_000),
}
"""A model, the shape of an example, and the size of a batch."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_numbers_of_large_models_do_not_depend_on_the_batch_with_any_number_of_threads(name: str) -> None:
    make, shape, batch_size = LARGE[name]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(max(400, batch_size), *shape, generator=generator)
    y = torch.randint(3, (len(x),), generator=generator)
    model = FlatModel(make)
    stack, settings = StackedModel(model), {"batch_size": batch_size, "clip_norm": 0.5}
    lengths = [len(x) if batch_size > 400 else 5 + 51 * i for i in range(6)]
    data = [Shard(x, y, torch.randperm(len(x), generator=generator)[:length]) for length in lengths]
    clients = [
        StackedClient(model.initial(i)[None], shard, 1 + i % 2, i, 0.1 / (1 + i % 3))
        for i, shard in enumerate(data)
    ]
    for num_threads in (1, 2, 3, 4):
        with deterministic_torch(num_threads):
            all_trained = stacked_results(model, clients, **settings)
            models = [trained.w for trained in all_trained]
            evaluations = evaluate_stacked(stack, models, data)
            for size in (1, 2, 4):
                part = slice(2, 2 + size)
                some = stacked_results(model, clients[part], **settings)
                for one, other in zip(some, all_trained[part], strict=True):
                    assert torch.equal(one.w, other.w)
                    assert torch.equal(one.direction, other.direction)
                    assert one.loss == other.loss
                assert evaluate_stacked(stack, models[part], data[part]) == evaluations[part]


def test_evaluation_of_a_model_does_not_depend_on_the_shards_of_others() -> None:
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(500, 5, generator=generator), torch.randint(3, (500,), generator=generator)
    model = FlatModel(lambda: mlp([5], 3, hidden=[64]))
    stack, models = StackedModel(model), [model.initial(i) for i in range(120)]
    data = [Shard(x, y, torch.randperm(500, generator=generator)[: 1 + 3 * i]) for i in range(120)]
    stacked = evaluate_stacked(stack, models, data)
    for w, shard, found in zip(models, data, stacked, strict=True):
        assert evaluate_stacked(stack, [w], [shard]) == [found]


def test_every_function_for_many_clients_is_tested_here() -> None:
    package = Path(learning.__file__).parent
    found = {
        name
        for path in package.glob("*.py")
        for name in re.findall(r"^def (\w+_stacked)\(", path.read_text(), re.M)
    }
    assert found == {"train_stacked", "evaluate_stacked"}


def test_a_client_that_diverges_does_not_change_the_others() -> None:
    model, data = FlatModel(lambda: mlp([5], 3, hidden=[7])), shards([5])
    clients = [StackedClient(model.initial(i)[None], shard, 3, i, 0.1) for i, shard in enumerate(data)]
    sound = stacked_results(model, clients, batch_size=8, clip_norm=0.5)
    clients[2] = StackedClient(torch.full_like(clients[2].w, 1e38), data[2], 3, 2, 0.1)
    mixed = stacked_results(model, clients, batch_size=8, clip_norm=0.5)
    assert not mixed[2].w.isfinite().all()
    for row in (0, 1, 3, 4, 5, 6):
        assert torch.equal(mixed[row].w, sound[row].w)


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_of_many_models_is_that_of_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BATCH_SIZE", 16)
    make, shape = MODELS[name]
    model, data = FlatModel(make), shards(shape)
    models = [model.initial(i) for i in range(len(data))]
    models[3] = torch.full_like(models[3], torch.nan)
    stacked = evaluate_stacked(StackedModel(model), models, data)
    for w, shard, found in zip(models, data, stacked, strict=True):
        expected = evaluate(model, w, shard)
        assert (found.accuracy, found.num_samples) == (expected.accuracy, expected.num_samples)
        assert found.loss == pytest.approx(expected.loss, rel=1e-5, nan_ok=True)


def test_predictions_on_a_whole_set_give_the_evaluation_on_every_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "BATCH_SIZE", 16)
    model, data = FlatModel(lambda: mlp([5], 3)), shards([5])
    w = model.initial(1)
    predictions = Predictions.of(model, w, data[0])
    for shard in data:
        expected = evaluate(model, w, shard)
        assert predictions.on(shard).accuracy == expected.accuracy
        assert predictions.on(shard).loss == pytest.approx(expected.loss, rel=1e-5)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Linear(4, 4), nn.Softplus()],
        [nn.Flatten(2), nn.Linear(4, 4)],
        [nn.Conv2d(1, 1, 3, padding_mode="reflect")],
        [shared := nn.Linear(4, 4), shared],
    ],
)
def test_model_that_cannot_be_stacked_is_rejected(layers: list[nn.Module]) -> None:
    with pytest.raises(NotStackableError):
        StackedModel(FlatModel(lambda: nn.Sequential(*layers)))
