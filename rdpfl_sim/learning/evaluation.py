"""How good a model is on a set of examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.data import Shard
from rdpfl_sim.learning.models import FlatModel


@dataclass(frozen=True)
class Evaluation:
    """Accuracy and mean cross-entropy; `loss` is nan or inf for a model that has diverged."""

    accuracy: float
    loss: float
    num_samples: int


@torch.inference_mode()
def evaluate(model: FlatModel, w: Tensor, shard: Shard, batch_size: int = 256) -> Evaluation:
    """The accuracy and loss of `w` on a shard of test examples.

    An answer with a logit that is not finite is no answer: a model that has diverged is never right.
    """
    device = model.vector.device
    model.load(w)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    losses = torch.zeros((), dtype=torch.float64, device=device)
    for positions in torch.split(torch.arange(len(shard), device=device), batch_size):
        x, y = shard.take(positions)
        logits = model(x)
        correct += ((logits.argmax(dim=1) == y) & logits.isfinite().all(dim=1)).sum()
        losses += cross_entropy(logits, y, reduction="sum")
    return Evaluation(correct.item() / len(shard), losses.item() / len(shard), len(shard))
