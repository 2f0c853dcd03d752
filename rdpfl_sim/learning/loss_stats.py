"""A client's loss where it stands: its value and gradient on all of its data, and how batches differ."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.models import FlatModel


@dataclass(frozen=True)
class View:
    """f(w) and its gradient; and of batch gradients g the mean of |g|^2 and of |g - grad f|^2."""

    loss: float
    gradient: Tensor
    mean_square: float
    variance: float


def look(model: FlatModel, w: Tensor, shard: Shard, batch_size: int) -> View:
    """What one pass over the whole shard, in batches and without augmentation, shows of the loss at w."""
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
    return View(loss, total.to(w.dtype), mean_square, variance)
