"""Value and gradient of a client's loss on its whole shard and the spread of batch gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.models import FlatModel


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
