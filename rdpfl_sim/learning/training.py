"""Local training: K steps of SGD from w on a client's shard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from math import cos, pi
from typing import Annotated, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rdpfl_sim.components.options import Count, Doc, NonNegativeInt, PositiveFraction
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.models import FlatModel, Precision
from rdpfl_sim.vectors import row_norms

LEARNING_RATE_SCHEDULES = Registry("learning_rate_schedule", Facts)
learning_rate_schedule = LEARNING_RATE_SCHEDULES.register

WarmUp: TypeAlias = Annotated[
    NonNegativeInt, Doc("rounds T_w of warm-up; for t < T_w the factor is multiplied by (t + 1) / T_w")
]


@learning_rate_schedule
def constant(t: int, rounds: int, *, warmup: WarmUp = 0) -> float:
    """Factor 1."""
    return _warmed_up(t, warmup)


@learning_rate_schedule
def step(
    t: int,
    rounds: int,
    *,
    every: Annotated[Count, Doc("rounds between two reductions")],
    factor: Annotated[PositiveFraction, Doc("factor of each reduction")] = 0.1,
    warmup: WarmUp = 0,
) -> float:
    """Factor that is reduced every few rounds after the warm-up."""
    return _warmed_up(t, warmup) * factor ** (max(t - warmup, 0) // every)


@learning_rate_schedule
def cosine(
    t: int,
    rounds: int,
    *,
    floor: Annotated[PositiveFraction, Doc("factor in the last round")] = 0.01,
    warmup: WarmUp = 0,
) -> float:
    """Half a period of a cosine, from 1 after the warm-up to the floor in the last round."""
    length = max(rounds - 1 - warmup, 1)
    progress = min(max(t - warmup, 0) / length, 1.0)
    factor = floor + (1 - floor) * (1 + cos(pi * progress)) / 2
    return _warmed_up(t, warmup) * max(round(factor, 12), floor)  # the last bits depend on the C library


def _warmed_up(t: int, warmup: int) -> float:
    return min((t + 1) / warmup, 1.0) if warmup else 1.0


@dataclass(frozen=True)
class OwnBatch:
    """A batch of a client's own examples for evaluating any model."""

    model: FlatModel
    x: Tensor
    labels: Tensor

    def logits(self, w: Tensor) -> Tensor:
        """Return the logits of model w, (n, classes)."""
        self.model.load(w)
        with torch.no_grad():
            return self.model(self.x)

    def loss(self, w: Tensor) -> float:
        """Return the mean cross-entropy of model w; nan if the model has diverged."""
        return cross_entropy(self.logits(w), self.labels).item()

    def gradient(self, w: Tensor) -> Tensor:
        """Return the gradient of the loss at w as a new vector."""
        self.model.load(w)
        self.model.gradient.zero_()
        torch.autograd.backward(cross_entropy(self.model(self.x), self.labels))
        return self.model.gradient.clone()


def num_local_steps(
    num_samples: int, batch_size: int, local_epochs: int, local_steps: int | None = None
) -> int:
    """Return K_i: `local_steps` if given, otherwise the number of batches in `local_epochs` epochs.

    The last batch of an epoch may be smaller than the others.

    >>> num_local_steps(130, batch_size=64, local_epochs=2)
    6
    """
    return local_steps or local_epochs * -(-num_samples // batch_size)


def batches(num_samples: int, batch_size: int, num_steps: int, seed: int) -> Iterator[Tensor]:
    """Yield the positions of `num_steps` batches: every epoch is a new permutation, cut into batches.

    The last batch of an epoch contains the remainder. Permutations are drawn on the CPU, so that batches are
    the same for every device and executor.
    """
    assert num_samples > 0, "a client without examples cannot train"
    generator = torch.Generator().manual_seed(seed)

    def endless() -> Iterator[Tensor]:
        while True:
            yield from torch.split(torch.randperm(num_samples, generator=generator), batch_size)

    return islice(endless(), num_steps)


def augmentation_rng(seed: int) -> torch.Generator:
    """Return the generator for a job's augmentation. It is independent of the generator for its batches."""
    return torch.Generator().manual_seed(seed ^ 1)


def dropout_seed(seed: int) -> int:
    """Return the seed for a job's dropout. It is independent of those for batches and augmentation."""
    return seed ^ 2


def train(
    model: FlatModel,
    w: Tensor,
    shard: Shard,
    *,
    num_steps: int,
    batch_size: int,
    learning_rate: float,
    momentum: float = 0.0,
    velocity: Tensor | None = None,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    mask: Tensor | None = None,
    proximal_to: Tensor | None = None,
    proximal_mu: float = 0.0,
    precision: Precision = "float32",
    seed: int,
) -> tuple[Tensor, float]:
    """Run `num_steps` steps of SGD on cross-entropy from `w`. Return the new weights and the mean batch loss.

    g = Clip(grad; clip_norm) + weight_decay * w + proximal_mu * (w - proximal_to), zero outside the mask,
    v = momentum * v + g,  w = w - learning_rate * v. v starts at 0, or at `velocity`, which is updated in
    place. If the model diverges, training continues with nan, and the loss is nan.

    With `bfloat16`, products and convolutions of the forward and the backward pass are computed in this
    precision; weights, their gradients and losses are float32.
    """
    rng = augmentation_rng(seed)
    device = model.vector.device
    model.load(w)
    if velocity is None:
        velocity = torch.zeros_like(model.vector) if momentum else model.gradient
    elif mask is not None:
        velocity.masked_fill_(~mask, 0.0)  # the mask of an earlier round may have been another one
    losses = torch.zeros((), device=device)
    drawn = list(batches(len(shard), batch_size, num_steps, seed))
    on_device = torch.cat(drawn).to(device)  # one copy per job, because each copy synchronises with the GPU
    with model.training(dropout_seed(seed)):
        for positions in torch.split(on_device, [len(batch) for batch in drawn]):
            x, y = shard.take(positions)
            if shard.augment is not None:
                x = shard.augment(x, rng)
            model.gradient.zero_()
            # Entered in every step, because inside a context autocast keeps the weights it has converted.
            with nullcontext() if precision == "float32" else torch.autocast(device.type, torch.bfloat16):
                logits = model(x)
            loss = cross_entropy(logits.float(), y)
            torch.autograd.backward(loss)
            losses += loss.detach()
            if clip_norm is not None:
                model.gradient.mul_(clipping_factors(model.gradient.unsqueeze(0), clip_norm))
            if weight_decay:
                model.gradient.add_(model.vector, alpha=weight_decay)
            if proximal_to is not None:
                model.gradient.add_(model.vector - proximal_to, alpha=proximal_mu)
            if mask is not None:
                model.gradient.masked_fill_(~mask, 0.0)
            if momentum:
                velocity.mul_(momentum).add_(model.gradient)
            model.vector.add_(velocity, alpha=-learning_rate)
    return model.vector.clone(), losses.item() / num_steps


def clipping_factors(gradients: Tensor, clip_norm: float) -> Tensor:
    """Return min(1, clip_norm / |g_i|) for every row (n,); 1 for a gradient that is not finite.

    >>> clipping_factors(torch.tensor([[3.0, 4.0], [0.3, 0.4], [torch.nan, 0.0]]), 1.0)
    tensor([0.2000, 1.0000, 1.0000])
    """
    lengths = row_norms(gradients)
    clipped = (lengths > clip_norm) & lengths.isfinite()
    return torch.where(clipped, clip_norm / lengths, 1.0).to(gradients.dtype)
