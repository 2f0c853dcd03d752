"""Many models of the same form, computed side by side: every client has its own weights and its own batch.

One call of torch then serves all clients. For small models, whose calls take longer than their arithmetic,
that is many times as fast as one client after the other. A linear layer becomes a batched matrix product.

A client's numbers do not depend on who else is in the stack. Matrices are filled up with zeros so that each
begins at a multiple of 64 bytes: how a matrix product rounds depends on where its matrices begin.
Convolutions are computed one client after the other: the last bits of one with groups depend on their
number, and except for the smallest it takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from rdpfl_sim.learning.models import FlatModel, shaped

ALIGNED = 16
"""So many floats are 64 bytes."""

Step: TypeAlias = Callable[..., Tensor]
"""What a layer does: from x (clients, batch, ...) and the layer's parameters (clients, ...) to its output."""


class NotStackableError(Exception):
    """A layer that cannot be computed for many clients at once; the message says which."""


class Stack:
    """The form of a model, ready to be computed for any number of clients at once."""

    def __init__(self, model: FlatModel) -> None:
        layers = list(_in_turn(model.module))
        parameters = [p for layer in layers for p in layer.parameters()]
        if [id(p) for p in parameters] != [id(p) for p in model.module.parameters()]:
            raise NotStackableError("layers that share parameters")
        self.steps = [(_step(layer), sum(1 for _ in layer.parameters())) for layer in layers]
        """Every layer in turn, and how many parameters it has."""
        self.shapes = list(model.shapes.values())
        self.num_parameters = model.num_parameters
        last = layers[-1]
        self.num_outputs = last.out_features if isinstance(last, nn.Linear) else None

    def unpacked(self, w: Tensor) -> list[Tensor]:
        """The rows of w (clients, P) as new parameters (clients, ...), filled up with zeros."""
        parameters, start = [], 0
        for shape in self.shapes:
            stop = start + shape.numel()
            p = w.new_zeros(len(w), *_filled_up(shape))
            _true_part(p, shape).copy_(shaped(w[:, start:stop], shape))
            parameters.append(p)
            start = stop
        return parameters

    def packed(self, parameters: Sequence[Tensor]) -> Tensor:
        """The other way round."""
        w = parameters[0].new_empty(len(parameters[0]), self.num_parameters)
        start = 0
        for p, shape in zip(parameters, self.shapes, strict=True):
            stop = start + shape.numel()
            shaped(w[:, start:stop], shape).copy_(_true_part(p, shape))
            start = stop
        return w

    def logits(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """What every client's model answers to its own batch x (clients, batch, ...)."""
        left = iter(parameters)
        for step, num_parameters in self.steps:
            x = step(x, *(next(left) for _ in range(num_parameters)))
        return x if self.num_outputs is None else x[..., : self.num_outputs]


def filled_up(size: int, unit: int = ALIGNED) -> int:
    """The next multiple of the unit."""
    return -(-size // unit) * unit


def _filled_up(shape: torch.Size) -> Sequence[int]:
    return shape if len(shape) == 4 else [filled_up(size) for size in shape]


def _true_part(p: Tensor, shape: torch.Size) -> Tensor:
    for dim, size in enumerate(shape, start=1):
        p = p.narrow(dim, 0, size)
    return p


def _in_turn(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of a sequence, those of sequences within it in their place."""
    if isinstance(module, nn.Sequential):
        for part in module:
            yield from _in_turn(part)
    else:
        yield module


def _step(layer: nn.Module) -> Step:
    make = STACKED.get(type(layer))
    if make is None:
        raise NotStackableError(f"a layer of the type {type(layer).__name__}")
    return make(layer)


def _linear(layer: nn.Linear) -> Step:
    def step(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        missing = weight.shape[-1] - x.shape[-1]
        if missing:
            x = functional.pad(x, (0, missing))
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
        raise NotStackableError("a Flatten of some dimensions only")
    return lambda x: x.flatten(2)


STACKED: dict[type[nn.Module], Callable[..., Step]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.MaxPool2d: _pooling,
    nn.AvgPool2d: _pooling,
    nn.Flatten: _flatten,
    # Of these, zero gives zero: what was filled up stays so.
    nn.ReLU: lambda layer: functional.relu,
    nn.Tanh: lambda layer: torch.tanh,
    nn.GELU: lambda layer: layer,
    nn.Identity: lambda layer: layer,
}
