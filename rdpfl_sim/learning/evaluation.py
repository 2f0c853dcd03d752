"""How good a model is on a set of examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.stacked_models import ALIGNED, Stack, filled_up

BATCH_SIZE = 256


@dataclass(frozen=True)
class Evaluation:
    """Accuracy and mean cross-entropy; `loss` is nan or inf for a model that has diverged."""

    accuracy: float
    loss: float
    num_samples: int


@dataclass(frozen=True)
class Answers:
    """What one model makes of every example of a data set: whether it is right, and its loss."""

    correct: Tensor
    losses: Tensor

    @classmethod
    @torch.inference_mode()
    def of(cls, model: FlatModel, w: Tensor, shard: Shard, batch_size: int = BATCH_SIZE) -> Answers:
        """The answers to all examples of the set that the shard is a part of."""
        model.load(w)
        batches = zip(torch.split(shard.x, batch_size), torch.split(shard.y, batch_size), strict=True)
        answers = [_judged(model(x), y) for x, y in batches]
        correct, losses = zip(*answers, strict=True)
        return cls(torch.cat(correct), torch.cat(losses).double())

    def on(self, shard: Shard) -> Evaluation:
        """Accuracy and loss on a part of the set."""
        num_correct = self.correct.index_select(0, shard.indices).sum().item()
        loss = self.losses.index_select(0, shard.indices).sum().item()
        return Evaluation(num_correct / len(shard), loss / len(shard), len(shard))


@torch.inference_mode()
def evaluate(model: FlatModel, w: Tensor, shard: Shard, batch_size: int = BATCH_SIZE) -> Evaluation:
    """The accuracy and loss of `w` on a shard of test examples.

    An answer with a logit that is not finite is no answer: a model that has diverged is never right.
    """
    device = model.vector.device
    model.load(w)
    num_correct = torch.zeros((), dtype=torch.int64, device=device)
    loss = torch.zeros((), dtype=torch.float64, device=device)
    for positions in torch.split(torch.arange(len(shard), device=device), batch_size):
        x, y = shard.take(positions)
        correct, losses = _judged(model(x), y)
        num_correct += correct.sum()
        loss += losses.sum()
    return Evaluation(num_correct.item() / len(shard), loss.item() / len(shard), len(shard))


@torch.inference_mode()
def evaluate_together(
    stack: Stack, w: Sequence[Tensor], shards: Sequence[Shard], batch_size: int = BATCH_SIZE
) -> list[Evaluation]:
    """What `evaluate` finds for every model on its own shard, those with similar shards side by side.

    As in training, small batches are filled up with copies of their first example, which do not count. The
    own shard decides how many there are, since the last bits of matrix products and sums depend on it.
    """
    places_of: dict[int, list[int]] = {}
    for place, shard in enumerate(shards):
        places_of.setdefault(_width(len(shard)), []).append(place)
    found: dict[int, Evaluation] = {}
    for width, places in places_of.items():
        models, theirs = [w[place] for place in places], [shards[place] for place in places]
        found.update(zip(places, _evaluate_alike(stack, models, theirs, width, batch_size), strict=True))
    return [found[place] for place in range(len(shards))]


def _width(num_samples: int) -> int:
    """The number of examples to which a shard is filled up; many shards share one."""
    return filled_up(num_samples, ALIGNED if num_samples <= 4 * ALIGNED else 4 * ALIGNED)


def _evaluate_alike(
    stack: Stack, w: Sequence[Tensor], shards: Sequence[Shard], width: int, batch_size: int
) -> list[Evaluation]:
    """As `evaluate_together`, all filled up to the same number of examples."""
    device, data = w[0].device, shards[0]
    parameters = stack.unpacked(torch.stack(list(w)))
    sizes = torch.tensor([len(shard) for shard in shards], device=device).unsqueeze(1)
    chosen = torch.stack(
        [torch.cat([shard.indices, shard.indices[:1].expand(width - len(shard))]) for shard in shards]
    )
    counts = torch.arange(chosen.shape[1], device=device) < sizes
    num_correct = torch.zeros(len(shards), dtype=torch.int64, device=device)
    loss = torch.zeros(len(shards), dtype=torch.float64, device=device)
    for these, count in zip(
        torch.split(chosen, batch_size, dim=1), torch.split(counts, batch_size, dim=1), strict=True
    ):
        x = data.x.index_select(0, these.flatten()).view(*these.shape, *data.x.shape[1:])
        y = data.y.index_select(0, these.flatten())
        correct, losses = _judged(stack.logits(parameters, x).flatten(0, 1), y)
        num_correct += (correct.view_as(count) & count).sum(dim=1)
        loss += losses.view_as(count).masked_fill(~count, 0.0).sum(dim=1)
    return [
        Evaluation(right / len(shard), total / len(shard), len(shard))
        for right, total, shard in zip(num_correct.tolist(), loss.tolist(), shards, strict=True)
    ]


def _judged(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of every answer, whether it is right, and its loss."""
    right = (logits.argmax(dim=1) == y) & logits.isfinite().all(dim=1)
    return right, cross_entropy(logits, y, reduction="none")
