"""Models and the flat vector of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from itertools import pairwise
from math import prod
from threading import RLock
from typing import Annotated, cast

import torch
from annotated_types import MaxLen
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from rdpfl_sim.components.options import Count, Doc
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError
from rdpfl_sim.files import check_memory

MODELS = Registry("model", Facts)
model = MODELS.register


@model
def softmax(shape: Sequence[int], num_classes: int) -> nn.Module:
    """Multinomial logistic regression: one linear layer, a convex problem."""
    return mlp(shape, num_classes, hidden=[])


@model
def mlp(
    shape: Sequence[int],
    num_classes: int,
    *,
    hidden: Annotated[Sequence[Count], MaxLen(1000), Doc("width of each hidden layer")] = [64],
) -> nn.Module:
    """Fully connected layers with ReLU between them."""
    widths = [prod(shape), *hidden]
    check_memory("hidden", 4 * sum(a * b for a, b in pairwise([*widths, num_classes])))
    layers: list[nn.Module] = [nn.Flatten()]
    for num_in, num_out in zip(widths, hidden, strict=False):
        layers += [nn.Linear(num_in, num_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))


@model
def cnn(
    shape: Sequence[int],
    num_classes: int,
    *,
    width: Annotated[Count, Doc("channels of the first convolution; the other two have twice as many")] = 32,
    hidden: Annotated[Count, Doc("width of the hidden linear layer")] = 64,
) -> nn.Module:
    """Three 3x3 convolutions, with pooling while images have at least 4x4 pixels, then two linear layers.

    The model has 122,570 parameters for 3x32x32 images and 10 classes.
    """
    if len(shape) != 3:
        raise OptionError(
            "", f"needs images [channels, height, width]; the data set's shape is {list(shape)}"
        )
    channels, height, width_px = shape
    check_memory("width", 4 * 9 * width * (channels + 6 * width))
    layers: list[nn.Module] = []
    for num_out in (width, 2 * width, 2 * width):
        layers.append(nn.Conv2d(channels, num_out, kernel_size=3, padding=1))
        if min(height, width_px) >= 4:
            layers.append(nn.MaxPool2d(2))
            height, width_px = height // 2, width_px // 2
        # Pooling and ReLU commute; in this order, ReLU processes a quarter of the elements.
        layers.append(nn.ReLU(inplace=True))
        channels = num_out
    return nn.Sequential(
        *layers, nn.Flatten(), mlp([channels * height * width_px], num_classes, hidden=[hidden])
    )


class FlatModel:
    """A module whose parameters are views of one float32 vector, and whose gradients are views of another.

    Loading weights is one copy, and a step of SGD is one addition. All clients share one FlatModel: load w,
    train, read `vector`.

    The vector contains the parameters in the order of `module.parameters()`, each in row-major order.
    Convolution weights of shape (out, in, height, width) are stored in the order (out, height, width, in).
    This is torch's channels_last layout, which convolutions on a CPU use without conversion.

    The module must have no buffers, such as those of batch normalisation: the vector does not contain them.
    It must have no layers that draw random numbers, such as dropout.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        buffers = [name for name, _ in module.named_buffers()]
        if buffers:
            raise ValueError(
                f"a model must have no state except its parameters; it has the buffers {', '.join(buffers)}"
            )
        self._template = deepcopy(module).cpu()  # in torch's own layout, for `initial`
        self.module = module.to(device)
        self.shapes = {name: p.shape for name, p in module.named_parameters()}
        self.num_parameters = sum(p.numel() for p in module.parameters())
        self.vector = torch.cat([_flat(p) for p in module.parameters()])
        self.gradient = torch.zeros_like(self.vector)
        start = 0
        for p in module.parameters():
            part = slice(start, start + p.numel())
            p.data = shaped(self.vector[part], p.shape)
            p.grad = shaped(self.gradient[part], p.shape)
            start = part.stop

    def __reduce__(self) -> tuple[type[FlatModel], tuple[nn.Module, torch.device]]:
        # Pickling does not preserve views, so a copy is built again with the module's initial weights.
        return FlatModel, (self._template, self.vector.device)

    def on(self, device: torch.device) -> FlatModel:
        """Return a model with the same layers on a device."""
        return FlatModel(deepcopy(self._template), device)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of a batch."""
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return cast(Tensor, self.module(x))

    def load(self, w: Tensor) -> None:
        """Copy `w` into the parameters."""
        self.vector.copy_(w)

    def initial(self, seed: int) -> Tensor:
        """Return a new vector with torch's default initialisation of the layers. It depends only on `seed`.

        Random numbers are drawn on the CPU, so that they are the same for every device.
        """
        module = deepcopy(self._template)
        with seeded(seed):
            for layer in module.modules():
                if next(layer.parameters(recurse=False), None) is not None:
                    assert callable(layer.reset_parameters), f"{layer} cannot be initialised again"
                    layer.reset_parameters()
        return torch.cat([_flat(p) for p in module.parameters()]).to(self.vector.device)


def _flat(p: Tensor) -> Tensor:
    p = p.detach()
    return (p.permute(0, 2, 3, 1) if p.dim() == 4 else p).reshape(-1)


def shaped(flat: Tensor, shape: torch.Size) -> Tensor:
    """Return a view of the last dimension as a parameter of this shape, in the order of `FlatModel`."""
    if len(shape) != 4:
        return flat.view(*flat.shape[:-1], *shape)
    num_out, num_in, height, width = shape
    return flat.view(*flat.shape[:-1], num_out, height, width, num_in).movedim(-1, -3)


_lock = RLock()
"""Torch has one process-wide flag for active modes, which concurrent threads would overwrite."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Make torch's random functions draw from a new generator with this seed, in this thread.

    The draws are the same as after `torch.manual_seed(seed)`, but the global generator is neither read nor
    changed. A random function that accepts no generator raises a ValueError.
    """
    with _lock, _PassGenerator(torch.Generator().manual_seed(seed)):
        yield


class _PassGenerator(TorchDispatchMode):
    """Passes a generator to random functions. Torch calls this mode for every function, below autograd."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes seconds

    def __torch_dispatch__(
        self,
        func: OpOverload[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call the function; if it is random and has no generator, pass the generator."""
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            func = _with_generator(func)
            is_given = len(args) > _argument_names(func).index("generator")
            if not is_given and given.get("generator") is None:
                given["generator"] = self.generator
        return func(*args, **given)


@cache
def _with_generator(func: OpOverload[..., object]) -> OpOverload[..., object]:
    """Return the overload of a random function that accepts a generator."""
    names = {*_argument_names(func), "generator"}
    packet = func.overloadpacket
    overloads: list[OpOverload[..., object]] = [getattr(packet, name) for name in packet.overloads()]
    for overload in (func, *overloads):
        if names == set(_argument_names(overload)):
            return overload
    raise ValueError(f"{packet} draws from torch's global generator and accepts no other")


def _argument_names(func: OpOverload[..., object]) -> list[str]:
    return [argument.name for argument in func._schema.arguments]
