"""Wall time of `train` on a FlatModel, compared with a plain module and torch.optim.SGD on the same batches.

All variants load the same weights, train, and return a flat vector. They take turns, so that a busy machine
slows all of them; compare the ratios, not the milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from statistics import median
from time import perf_counter

import numpy as np
import torch
from table import Row, show
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Dataset, Shard, digits, synthetic
from rdpfl_sim.learning.models import FlatModel, cnn, mlp
from rdpfl_sim.learning.training import batches, train

BATCH_SIZE = 64
LEARNING_RATE = 0.01


def plain(module: nn.Module, shard: Shard, num_steps: int, *, channels_last: bool) -> Callable[[], Tensor]:
    """Return local training in a straightforward implementation."""
    if channels_last:
        module = module.to(memory_format=torch.channels_last)
    weights = deepcopy(module.state_dict())

    def run() -> Tensor:
        module.load_state_dict(weights)
        optimiser = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
        for positions in batches(len(shard), BATCH_SIZE, num_steps, seed=0):
            x, y = shard.take(positions)
            if channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            optimiser.zero_grad()
            torch.autograd.backward(cross_entropy(module(x), y))
            optimiser.step()
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    return run


def flat(module: nn.Module, shard: Shard, num_steps: int) -> Callable[[], Tensor]:
    """Return local training as the simulator does it."""
    model = FlatModel(lambda: module)
    w = model.vector.clone()

    def run() -> Tensor:
        trained_w, _ = train(
            model, w, shard, num_steps=num_steps, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE, seed=0
        )
        return trained_w

    return run


def compare(title: str, data: Dataset, module: nn.Module, *, num_steps: int, num_repeats: int) -> Row:
    """Measure the median time per step, and its ratio to the plain module in the same memory layout."""
    shard = Shard(data.x_train, data.y_train, torch.arange(len(data.y_train)))
    variants = {
        "plain": plain(deepcopy(module), shard, num_steps, channels_last=False),
        "plain, channels_last": plain(deepcopy(module), shard, num_steps, channels_last=True),
        "FlatModel": flat(deepcopy(module), shard, num_steps),
    }
    times_s: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(num_repeats + 1):
        for name, run in variants.items():
            start = perf_counter()
            run()
            if repeat > 0:  # the first repeat is a warm-up
                times_s[name].append((perf_counter() - start) / num_steps)
    name = "plain, channels_last" if data.x_train.dim() == 4 and data.shape[1] > 8 else "plain"
    ours, other = times_s["FlatModel"], times_s[name]
    ratio = median(a / b for a, b in zip(ours, other, strict=True))
    task = f"a training step of {title}, {torch.get_num_threads()} thread(s)"
    return Row(task, f"{1e3 * median(ours):.2f} ms", f"{name} {1e3 * median(other):.2f} ms", ratio)


def rows() -> list[Row]:
    """Measure a CNN with CIFAR-sized images and a small MLP, with one thread and with all."""
    images = synthetic(np.random.default_rng(0), shape=[3, 32, 32], num_train=512, num_test=1)
    numbers = digits(np.random.default_rng(0))
    found = []
    for num_threads in sorted({1, os.cpu_count() or 1}):
        torch.set_num_threads(num_threads)
        found.append(compare("a CNN, 3x32x32", images, cnn([3, 32, 32], 10), num_steps=2, num_repeats=7))
        found.append(compare("an MLP, digits", numbers, mlp([1, 8, 8], 10), num_steps=22, num_repeats=20))
    return found


if __name__ == "__main__":
    show(rows())
