"""Accuracy and loss of a model on a set of examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.stacked import FLOATS_PER_LINE, StackedModel, aligned

BATCH_SIZE = 256


@dataclass(frozen=True)
class Evaluation:
    """Accuracy and mean cross-entropy. The loss of a model that has diverged is nan or inf."""

    accuracy: float
    loss: float
    num_samples: int


@dataclass(frozen=True)
class Predictions:
    """Correctness and loss of one model on every example of a data set."""

    correct: Tensor
    losses: Tensor

    @classmethod
    @torch.inference_mode()
    def of(cls, model: FlatModel, w: Tensor, shard: Shard) -> Predictions:
        """Evaluate the model on all examples of the shard's data set."""
        model.load(w)
        batches = zip(torch.split(shard.x, BATCH_SIZE), torch.split(shard.y, BATCH_SIZE), strict=True)
        correct, losses = zip(*(_judge(model(x), y) for x, y in batches), strict=True)
        return cls(torch.cat(correct), torch.cat(losses).double())

    def on(self, shard: Shard) -> Evaluation:
        """Return accuracy and loss on a part of the data set."""
        num_correct = self.correct.index_select(0, shard.indices).sum().item()
        loss = self.losses.index_select(0, shard.indices).sum().item()
        return Evaluation(num_correct / len(shard), loss / len(shard), len(shard))


@torch.inference_mode()
def evaluate(model: FlatModel, w: Tensor, shard: Shard) -> Evaluation:
    """Return the accuracy and loss of `w` on a shard of test examples.

    A prediction with a logit that is not finite counts as wrong.
    """
    device = model.vector.device
    model.load(w)
    num_correct = torch.zeros((), dtype=torch.int64, device=device)
    loss = torch.zeros((), dtype=torch.float64, device=device)
    for positions in torch.split(torch.arange(len(shard), device=device), BATCH_SIZE):
        x, y = shard.take(positions)
        correct, losses = _judge(model(x), y)
        num_correct += correct.sum()
        loss += losses.sum()
    return Evaluation(num_correct.item() / len(shard), loss.item() / len(shard), len(shard))


@torch.inference_mode()
def evaluate_stacked(stack: StackedModel, w: Sequence[Tensor], shards: Sequence[Shard]) -> list[Evaluation]:
    """Evaluate every model on its own shard; models with shards of similar size are evaluated together.

    As in training, small batches are padded with copies of their first example, which are ignored. The
    padded size depends only on the model's own shard, because it affects the last bits of matrix products
    and sums.
    """
    rows_by_size: dict[int, list[int]] = {}
    for row, shard in enumerate(shards):
        rows_by_size.setdefault(_padded_size(len(shard)), []).append(row)
    results: dict[int, Evaluation] = {}
    for size, rows in rows_by_size.items():
        evaluations = _evaluate_padded(stack, [w[i] for i in rows], [shards[i] for i in rows], size)
        results.update(zip(rows, evaluations, strict=True))
    return [results[row] for row in range(len(shards))]


def _padded_size(num_samples: int) -> int:
    """Return the padded size of a shard. Many shards have the same padded size."""
    unit = FLOATS_PER_LINE if num_samples <= 4 * FLOATS_PER_LINE else 4 * FLOATS_PER_LINE
    return aligned(num_samples, unit)


def _evaluate_padded(
    stack: StackedModel, w: Sequence[Tensor], shards: Sequence[Shard], size: int
) -> list[Evaluation]:
    """Evaluate models whose shards are all padded to the same number of examples."""
    device, data = w[0].device, shards[0]
    parameters = stack.unpack(torch.stack(list(w)))
    sizes = torch.tensor([len(shard) for shard in shards], device=device).unsqueeze(1)
    chosen = torch.stack(
        [torch.cat([shard.indices, shard.indices[:1].expand(size - len(shard))]) for shard in shards]
    )
    is_real = torch.arange(chosen.shape[1], device=device) < sizes
    num_correct = torch.zeros(len(shards), dtype=torch.int64, device=device)
    loss = torch.zeros(len(shards), dtype=torch.float64, device=device)
    batches = (torch.split(each, BATCH_SIZE, dim=1) for each in (chosen, is_real))
    for batch, real in zip(*batches, strict=True):
        x = data.x.index_select(0, batch.flatten()).view(*batch.shape, *data.x.shape[1:])
        y = data.y.index_select(0, batch.flatten())
        correct, losses = _judge(stack.logits(parameters, x).flatten(0, 1), y)
        num_correct += (correct.view_as(real) & real).sum(dim=1)
        loss += losses.view_as(real).masked_fill(~real, 0.0).sum(dim=1)
    return [
        Evaluation(correct / len(shard), total / len(shard), len(shard))
        for correct, total, shard in zip(num_correct.tolist(), loss.tolist(), shards, strict=True)
    ]


def _judge(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the correctness of the prediction and the loss for every example."""
    correct = (logits.argmax(dim=1) == y) & logits.isfinite().all(dim=1)
    return correct, cross_entropy(logits, y, reduction="none")


@dataclass(frozen=True)
class LossStats:
    """f(w), grad f(w), and the means of |g|^2 and |g - grad f|^2 over the batch gradients g."""

    loss: float
    gradient: Tensor
    mean_square: float
    variance: float


def loss_stats(model: FlatModel, w: Tensor, shard: Shard, batch_size: int) -> LossStats:
    """Compute the statistics at w in one pass over the shard, in batches and without augmentation."""
    model.load(w)
    total = torch.zeros_like(w, dtype=torch.float64)
    loss = mean_square = 0.0
    for positions in torch.split(torch.arange(len(shard), device=w.device), batch_size):
        x, y = shard.take(positions)
        model.gradient.zero_()
        batch_loss = cross_entropy(model(x), y)
        torch.autograd.backward(batch_loss)
        share, g = len(y) / len(shard), model.gradient.double()
        total.add_(g, alpha=share)
        loss += share * batch_loss.item()
        mean_square += share * (g @ g).item()
    variance = max(0.0, mean_square - (total @ total).item())
    return LossStats(loss, total.to(w.dtype), mean_square, variance)
