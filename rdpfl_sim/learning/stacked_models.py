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
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdpfl_sim.learning.models import FlatModel, shaped

FLOATS_PER_LINE = 16
"""Number of floats in 64 bytes."""

Step: TypeAlias = Callable[..., Tensor]
"""A layer as a function of x (clients, batch, ...) and its parameters (clients, ...)."""


class NotStackableError(Exception):
    """A layer that cannot be computed for many clients together. The message names it."""


class StackedModel:
    """The layers of a model, as functions that compute any number of clients in one call."""

    def __init__(self, model: FlatModel) -> None:
        layers = list(_layers(model.module))
        parameters = [p for layer in layers for p in layer.parameters()]
        if [id(p) for p in parameters] != [id(p) for p in model.module.parameters()]:
            raise NotStackableError("layers that share parameters")
        self.steps = [(_step(layer), sum(1 for _ in layer.parameters())) for layer in layers]
        """Every layer in order, with the number of its parameters."""
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
            _unpadded(p, shape).copy_(shaped(w[:, start:stop], shape))
            parameters.append(p)
            start = stop
        return parameters

    def pack(self, parameters: Sequence[Tensor]) -> Tensor:
        """Return the parameters as rows (clients, P), without padding."""
        w = parameters[0].new_empty(len(parameters[0]), self.num_parameters)
        start = 0
        for p, shape in zip(parameters, self.shapes, strict=True):
            stop = start + shape.numel()
            shaped(w[:, start:stop], shape).copy_(_unpadded(p, shape))
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
        raise NotStackableError(f"a layer of type {type(layer).__name__}")
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
        raise NotStackableError(f"a convolution with padding_mode = {layer.padding_mode!r}")

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
        raise NotStackableError("a Flatten that keeps some dimensions")
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
