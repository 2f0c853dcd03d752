"""Local training of many clients at once: what `train` does for each, in calls that serve all of them.

Clients may have different numbers of steps and of examples. Those with the most steps come first, so that
the ones that still train are always the first rows; a batch that is smaller than others is filled up with
copies of its first example, which do not count. The numbers are those of `train` up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.stacked_models import Stack, filled_up
from rdpfl_sim.learning.training import Trained, variants_of

MAX_SUMMED = 8192
"""Examples of a batch whose losses are added up at a time."""


@dataclass(frozen=True)
class BatchedClient:
    """One client's part: where it starts, its data, and how many steps it takes."""

    w: Tensor
    shard: Shard
    num_steps: int
    seed: int
    mask: Tensor | None = None
    anchor: Tensor | None = None


def train_together(
    stack: Stack,
    clients: Sequence[BatchedClient],
    *,
    batch_size: int,
    learning_rate: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    pull: float = 0.0,
) -> list[Trained]:
    """What `train` makes of every client. All have a mask or none has; the same holds for anchors."""
    order = sorted(range(len(clients)), key=lambda place: -clients[place].num_steps)
    clients = [clients[place] for place in order]
    starts = torch.stack([client.w for client in clients])
    parameters = stack.unpacked(starts)
    velocities = [torch.zeros_like(p) for p in parameters] if momentum else None
    anchors = _rows(stack, [client.anchor for client in clients])
    masks = _rows(stack, [client.mask for client in clients])
    losses = torch.zeros(len(clients), device=clients[0].w.device)
    lessons = BatchedLoader(clients, batch_size)
    for step in range(clients[0].num_steps):
        x, y, weights = lessons.at(step)
        now = [p[: len(x)] for p in parameters]
        leaves = [p.detach().requires_grad_() for p in now]
        logits = stack.logits(leaves, x)
        each = cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(y)
        weighted = each * weights
        gradients = torch.autograd.grad(weighted.sum(), leaves)
        # In parts, as torch divides a long row among its threads if there is but one.
        for part in torch.split(weighted.detach(), MAX_SUMMED, dim=1):
            losses[: len(x)] += part.sum(dim=1)
        for place, (p, g) in enumerate(zip(now, gradients, strict=True)):
            if weight_decay:
                g = g.add(p, alpha=weight_decay)
            if anchors is not None:
                g = g.add(p - anchors[place][: len(x)], alpha=pull)
            if masks is not None:
                g = g.masked_fill(~masks[place][: len(x)], 0.0)
            if velocities is not None:
                g = velocities[place][: len(x)].mul_(momentum).add_(g)
            p.sub_(g, alpha=learning_rate)
    trained: list[Trained | None] = [None] * len(clients)
    ends = stack.packed(parameters)
    lengths = torch.tensor([learning_rate * client.num_steps for client in clients], device=ends.device)
    directions = starts.sub_(ends).div_(lengths.unsqueeze(1))
    rows = zip(order, clients, ends, directions, losses.tolist(), strict=True)
    for place, client, end, direction, loss_sum in rows:
        # Vectors of its own, so that one client's model does not keep all others in memory.
        trained[place] = Trained(
            end.clone(), client.num_steps, loss_sum / client.num_steps, direction=direction.clone()
        )
    return [outcome for outcome in trained if outcome is not None]


class BatchedLoader:
    """The batches of all clients, step by step."""

    def __init__(self, clients: Sequence[BatchedClient], batch_size: int) -> None:
        self.data = clients[0].shard
        shape = clients[0].num_steps, len(clients)
        self.batch_size = batch_size
        chosen = np.zeros((*shape, filled_up(batch_size)), dtype=np.int64)
        self.sizes = np.zeros(shape, dtype=np.int64)
        """The number of true examples of step and client."""
        generator = torch.Generator()
        for place, client in enumerate(clients):
            self._plan(chosen, place, client, generator.manual_seed(client.seed))
        # One copy each for all steps: every copy makes the host wait for a GPU.
        device = clients[0].w.device
        self.chosen = torch.from_numpy(chosen).to(device)
        """The examples of step, client and place in the batch."""
        self.sizes_on_device = torch.from_numpy(self.sizes).to(device)
        augmented = self.data.augment is not None
        self.variants = [variants_of(client.seed) for client in clients] if augmented else None

    def _plan(
        self, chosen: NDArray[np.int64], place: int, client: BatchedClient, generator: torch.Generator
    ) -> None:
        """Cut the epochs of a client into batches, as `batches` does."""
        examples, batch_size = client.shard.places, self.batch_size
        step = 0
        while step < client.num_steps:
            epoch = examples[torch.randperm(len(examples), generator=generator).numpy()]
            for start in range(0, len(epoch), batch_size)[: client.num_steps - step]:
                batch, row = epoch[start : start + batch_size], chosen[step, place]
                row[: len(batch)] = batch
                row[len(batch) :] = batch[0]
                self.sizes[step, place] = len(batch)
                step += 1

    def at(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """x (n, batch, ...), y and weights (n, batch) of the n clients that take this step.

        The weights of a client's true examples are one over their number, so that they give the mean.
        """
        sizes = self.sizes[step]
        num_active = np.count_nonzero(sizes)
        chosen = self.chosen[step, :num_active]
        flat = chosen.flatten()
        x = self.data.x.index_select(0, flat).view(*chosen.shape, *self.data.x.shape[1:])
        y = self.data.y.index_select(0, flat).view(chosen.shape)
        if self.variants is not None:
            assert self.data.augment is not None
            for row, size, variants in zip(x, sizes, self.variants, strict=False):
                row[:size] = self.data.augment(row[:size], variants)
        num = self.sizes_on_device[step, :num_active].unsqueeze(1)
        counts = torch.arange(chosen.shape[1], device=num.device) < num
        return x, y, counts / num


def _rows(stack: Stack, vectors: Sequence[Tensor | None]) -> list[Tensor] | None:
    """One vector a client, as parameters; None if they have none."""
    present = [vector for vector in vectors if vector is not None]
    return stack.unpacked(torch.stack(present)) if present else None
