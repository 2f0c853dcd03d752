"""Local training of many clients in one computation. Results equal the results of `train` up to rounding.

Clients may have different numbers of steps and examples. They are sorted by their number of steps, so that
the clients still in training are always the first rows. Small batches are padded with copies of their first
example, which have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.stacked_models import StackedModel, aligned
from rdpfl_sim.learning.training import augmentation_rng

MAX_SUMMED = 8192
"""Losses of a batch are summed in parts of this many examples."""


class StackedClient(NamedTuple):
    """Initial weights, data and number of steps of one client. Vectors are rows (1, d)."""

    w: Tensor
    shard: Shard
    num_steps: int
    seed: int
    mask: Tensor | None = None
    proximal_to: Tensor | None = None


class StackedResult(NamedTuple):
    """Results of the training of n clients."""

    w: Tensor  # (n, d), the weights after the last step
    direction: Tensor  # (n, d), the mean gradient (w_before - w) / (learning rate * steps)
    losses: list[float]  # the clients' mean batch losses; nan if training diverged


def train_stacked(
    stack: StackedModel,
    clients: Sequence[StackedClient],
    *,
    batch_size: int,
    learning_rate: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    proximal_mu: float = 0.0,
) -> StackedResult:
    """Train every client as `train` does. The number of steps must not increase from client to client.

    Either all clients have a mask or none has. The same applies to `proximal_to`.
    """
    num_steps = [client.num_steps for client in clients]
    assert num_steps == sorted(num_steps, reverse=True), "clients must be sorted by their number of steps"
    starts = torch.cat([client.w for client in clients])
    parameters = stack.unpack(starts)
    velocities = [torch.zeros_like(p) for p in parameters] if momentum else None
    proximal_to = _rows(stack, [client.proximal_to for client in clients])
    masks = _rows(stack, [client.mask for client in clients])
    losses = torch.zeros(len(clients), device=clients[0].w.device)
    loader = StackedLoader(clients, batch_size)
    for step in range(num_steps[0]):
        x, y, weights = loader.at(step)
        active = [p[: len(x)] for p in parameters]
        leaves = [p.detach().requires_grad_() for p in active]
        logits = stack.logits(leaves, x)
        each = cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(y)
        weighted = each * weights
        gradients = torch.autograd.grad(weighted.sum(), leaves)
        # Sum in parts, because torch splits the sum of a single long row among its threads.
        for part in torch.split(weighted.detach(), MAX_SUMMED, dim=1):
            losses[: len(x)] += part.sum(dim=1)
        for layer, (p, g) in enumerate(zip(active, gradients, strict=True)):
            if weight_decay:
                g = g.add(p, alpha=weight_decay)
            if proximal_to is not None:
                g = g.add(p - proximal_to[layer][: len(x)], alpha=proximal_mu)
            if masks is not None:
                g = g.masked_fill(~masks[layer][: len(x)], 0.0)
            if velocities is not None:
                g = velocities[layer][: len(x)].mul_(momentum).add_(g)
            p.sub_(g, alpha=learning_rate)
    ends = stack.pack(parameters)
    lengths = torch.tensor([learning_rate * k for k in num_steps], device=ends.device)
    directions = starts.sub_(ends).div_(lengths.unsqueeze(1))
    mean_losses = [loss / k for loss, k in zip(losses.tolist(), num_steps, strict=True)]
    return StackedResult(ends, directions, mean_losses)


class StackedLoader:
    """The batches of all clients, step by step."""

    def __init__(self, clients: Sequence[StackedClient], batch_size: int) -> None:
        self.data = clients[0].shard  # all shards of a batch are parts of one data set
        shape = clients[0].num_steps, len(clients)
        self.batch_size = batch_size
        chosen = np.zeros((*shape, aligned(batch_size)), dtype=np.int64)
        self.sizes = np.zeros(shape, dtype=np.int64)
        """Number of real examples per step and client."""
        generator = torch.Generator()
        for row, client in enumerate(clients):
            self._plan(chosen, row, client, generator.manual_seed(client.seed))
        # One copy for all steps, because every copy makes the host wait for a GPU.
        device = clients[0].w.device
        self.chosen = torch.from_numpy(chosen).to(device)
        """Index of every example, by step, client and position in the batch."""
        self.sizes_on_device = torch.from_numpy(self.sizes).to(device)
        augmented = self.data.augment is not None
        self.augmentation_rngs = [augmentation_rng(client.seed) for client in clients] if augmented else None

    def _plan(
        self, chosen: NDArray[np.int64], row: int, client: StackedClient, generator: torch.Generator
    ) -> None:
        """Write the batches of a client into its row, as `batches` draws them."""
        examples, batch_size = client.shard.indices_np, self.batch_size
        step = 0
        while step < client.num_steps:
            epoch = examples[torch.randperm(len(examples), generator=generator).numpy()]
            for start in range(0, len(epoch), batch_size)[: client.num_steps - step]:
                batch = epoch[start : start + batch_size]
                chosen[step, row, : len(batch)] = batch
                chosen[step, row, len(batch) :] = batch[0]
                self.sizes[step, row] = len(batch)
                step += 1

    def at(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return x (n, batch, ...), y and weights (n, batch) of the n clients that take this step.

        Real examples have the weight 1 / (number of real examples). Padding has weight 0.
        """
        sizes = self.sizes[step]
        num_active = np.count_nonzero(sizes)
        chosen = self.chosen[step, :num_active]
        flat = chosen.flatten()
        x = self.data.x.index_select(0, flat).view(*chosen.shape, *self.data.x.shape[1:])
        y = self.data.y.index_select(0, flat).view(chosen.shape)
        if self.augmentation_rngs is not None:
            assert self.data.augment is not None
            for batch, size, rng in zip(x, sizes, self.augmentation_rngs, strict=False):
                batch[:size] = self.data.augment(batch[:size], rng)
        num = self.sizes_on_device[step, :num_active].unsqueeze(1)
        is_real = torch.arange(chosen.shape[1], device=num.device) < num
        return x, y, is_real / num


def _rows(stack: StackedModel, vectors: Sequence[Tensor | None]) -> list[Tensor] | None:
    """Return one vector per client as stacked parameters, or None if the clients have none."""
    present = [vector for vector in vectors if vector is not None]
    return stack.unpack(torch.cat(present)) if present else None
