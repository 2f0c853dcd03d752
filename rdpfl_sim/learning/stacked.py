"""Models with the same layers, computed for many clients in one call, each with its own weights and batch.

For small models, the overhead of a torch call exceeds its arithmetic, so this is many times faster than one
call per client. A linear layer becomes a batched matrix product.

The bits of a client's results do not depend on the other clients. Matrices are padded with zeros so that
each starts at a multiple of 64 bytes, because the rounding of a matrix product depends on the alignment of
its matrices. With several torch threads, products are computed client by client: MKL divides a batched
product among the threads in a way that depends on the number of clients. So are convolutions: the last bits
of a grouped convolution depend on the number of groups, and grouped convolutions are slower except for the
smallest models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from rdpfl_sim.learning.datasets.dataset import Shard
from rdpfl_sim.learning.models import FlatModel
from rdpfl_sim.learning.training import augmentation_rng, clipping_factors

FLOATS_PER_LINE = 16
"""Number of floats in 64 bytes."""

Step: TypeAlias = Callable[..., Tensor]
"""A layer as a function of x (clients, batch, ...) and its parameters (clients, ...)."""


class NotStackableError(Exception):
    """A model or setting that cannot be computed for many clients together. The message is the reason."""


class StackedModel:
    """The layers of a model, as functions that compute any number of clients in one call."""

    def __init__(self, model: FlatModel) -> None:
        if model.has_dropout:
            raise NotStackableError("the model has dropout")
        layers = list(_layers(model.module))
        parameters = [p for layer in layers for p in layer.parameters()]
        if [id(p) for p in parameters] != [id(p) for p in model.module.parameters()]:
            raise NotStackableError("the model has layers that share parameters")
        self.steps = [(_step(layer), sum(1 for _ in layer.parameters())) for layer in layers]
        """Every layer in order, with the number of its parameters."""
        self.shaped = model.shaped
        self.shapes = list(model.shapes.values())
        self.num_parameters = model.num_parameters
        last = layers[-1]
        self.num_outputs = last.out_features if isinstance(last, nn.Linear) else None

    def unpack(self, w: Tensor) -> list[Tensor]:
        """Return the rows of w (clients, P) as new parameters (clients, ...), padded with zeros."""
        parameters, start = [], 0
        for shape in self.shapes:
            stop = start + shape.numel()
            p = w.new_zeros(len(w), *_padded_shape(shape))
            _unpadded(p, shape).copy_(self.shaped(w[:, start:stop], shape))
            parameters.append(p)
            start = stop
        return parameters

    def pack(self, parameters: Sequence[Tensor]) -> Tensor:
        """Return the parameters as rows (clients, P), without padding."""
        w = parameters[0].new_empty(len(parameters[0]), self.num_parameters)
        start = 0
        for p, shape in zip(parameters, self.shapes, strict=True):
            stop = start + shape.numel()
            self.shaped(w[:, start:stop], shape).copy_(_unpadded(p, shape))
            start = stop
        return w

    def logits(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the logits of every client's model on its own batch x (clients, batch, ...)."""
        remaining = iter(parameters)
        for step, num_parameters in self.steps:
            x = step(x, *(next(remaining) for _ in range(num_parameters)))
        return x if self.num_outputs is None else x[..., : self.num_outputs]


def aligned(size: int, unit: int = FLOATS_PER_LINE) -> int:
    """Return the smallest multiple of `unit` that is at least `size`."""
    return -(-size // unit) * unit


def _padded_shape(shape: torch.Size) -> Sequence[int]:
    return shape if len(shape) == 4 else [aligned(size) for size in shape]


def _unpadded(p: Tensor, shape: torch.Size) -> Tensor:
    for dim, size in enumerate(shape, start=1):
        p = p.narrow(dim, 0, size)
    return p


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of a module in order; nested sequences are flattened."""
    if isinstance(module, nn.Sequential):
        for part in module:
            yield from _layers(part)
    else:
        yield module


def _step(layer: nn.Module) -> Step:
    make = STACKED.get(type(layer))
    if make is None:
        raise NotStackableError(f"the model has a layer of type {type(layer).__name__}")
    return make(layer)


def _linear(layer: nn.Linear) -> Step:
    def step(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        missing = weight.shape[-1] - x.shape[-1]
        if missing:
            x = functional.pad(x, (0, missing))
        if torch.get_num_threads() > 1:
            biases = [None] * len(x) if bias is None else bias
            return torch.stack([*map(functional.linear, x, weight, biases)])
        if bias is None:
            return torch.bmm(x, weight.mT)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    return step


def _convolution(layer: nn.Conv2d) -> Step:
    if layer.padding_mode != "zeros":
        raise NotStackableError(f"the model has a convolution with padding_mode = {layer.padding_mode!r}")

    convolve = partial(
        functional.conv2d,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
    )

    def step(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        biases = [None] * len(x) if bias is None else bias[:, : layer.out_channels]
        return torch.stack([convolve(*client) for client in zip(x, weight, biases, strict=True)])

    return step


def _pooling(layer: nn.MaxPool2d | nn.AvgPool2d) -> Step:
    return lambda x: layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def _flatten(layer: nn.Flatten) -> Step:
    if (layer.start_dim, layer.end_dim) != (1, -1):
        raise NotStackableError("the model has a Flatten that keeps some dimensions")
    return lambda x: x.flatten(2)


STACKED: dict[type[nn.Module], Callable[..., Step]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.MaxPool2d: _pooling,
    nn.AvgPool2d: _pooling,
    nn.Flatten: _flatten,
    # These map zero to zero, so that padding stays zero.
    nn.ReLU: lambda layer: functional.relu,
    nn.Tanh: lambda layer: torch.tanh,
    nn.GELU: lambda layer: layer,
    nn.Identity: lambda layer: layer,
}


MAX_SUMMED = 8192
"""Losses of a batch are summed in parts of this many examples."""


class StackedClient(NamedTuple):
    """Initial weights, data and steps of one client. Vectors are rows (1, d)."""

    w: Tensor
    shard: Shard
    num_steps: int
    seed: int
    learning_rate: float
    mask: Tensor | None = None
    proximal_to: Tensor | None = None
    velocity: Tensor | None = None


class StackedResult(NamedTuple):
    """Results of many clients, one row (d,) per client."""

    w: Tensor
    directions: Tensor
    """The mean gradients (w_before - w) / (learning rate * steps)."""
    losses: list[float]
    """The mean batch losses; nan if training diverged."""
    velocities: Tensor | None
    """None without momentum."""


def train_stacked(
    stack: StackedModel,
    clients: Sequence[StackedClient],
    *,
    batch_size: int,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    proximal_mu: float = 0.0,
) -> StackedResult:
    """Train every client as `train` does. The number of steps must not increase from client to client.

    Either all clients have a mask or none has. The same applies to `proximal_to` and to `velocity`.
    """
    num_steps = [client.num_steps for client in clients]
    assert num_steps == sorted(num_steps, reverse=True), "clients must be sorted by their number of steps"
    starts = torch.cat([client.w for client in clients])
    parameters = stack.unpack(starts)
    proximal_to = _rows(stack, [client.proximal_to for client in clients])
    masks = _rows(stack, [client.mask for client in clients])
    velocities = _rows(stack, [client.velocity for client in clients])
    if velocities is None and momentum:
        velocities = [torch.zeros_like(p) for p in parameters]
    elif velocities is not None and masks is not None:
        velocities = [v.masked_fill(~mask, 0.0) for v, mask in zip(velocities, masks, strict=True)]
    losses = torch.zeros(len(clients), device=clients[0].w.device)
    loader, rates = StackedLoader(clients, batch_size), list(_learning_rates(clients))
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
        factors = None if clip_norm is None else clipping_factors(stack.pack(gradients), clip_norm)
        for layer, (p, g) in enumerate(zip(active, gradients, strict=True)):
            if factors is not None:
                g = g * factors.view(-1, *[1] * (g.dim() - 1))
            if weight_decay:
                g = g.add(p, alpha=weight_decay)
            if proximal_to is not None:
                g = g.add(p - proximal_to[layer][: len(x)], alpha=proximal_mu)
            if masks is not None:
                g = g.masked_fill(~masks[layer][: len(x)], 0.0)
            if velocities is not None:
                g = velocities[layer][: len(x)].mul_(momentum).add_(g)
            for rows, learning_rate in rates:
                p[rows].sub_(g[rows], alpha=learning_rate)
    ends = stack.pack(parameters)
    lengths = torch.tensor(
        [client.learning_rate * client.num_steps for client in clients], device=ends.device
    )
    directions = starts.sub_(ends).div_(lengths.unsqueeze(1))
    mean_losses = [loss / k for loss, k in zip(losses.tolist(), num_steps, strict=True)]
    last = None if velocities is None else stack.pack(velocities)
    return StackedResult(ends, directions, mean_losses, last)


def _learning_rates(clients: Sequence[StackedClient]) -> Iterator[tuple[slice, float]]:
    """Yield the rows of consecutive clients with the same learning rate, and the rate.

    A step with a column of rates instead of a number would be rounded differently.
    """
    start = 0
    for learning_rate, part in groupby(client.learning_rate for client in clients):
        stop = start + len(list(part))
        yield slice(start, stop), learning_rate
        start = stop


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
