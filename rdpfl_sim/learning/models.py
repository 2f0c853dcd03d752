"""Models and the flat vector of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from math import prod
from threading import RLock
from typing import Annotated, Literal, TypeAlias, cast

import torch
from annotated_types import Ge, MaxLen
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from rdpfl_sim.components.options import Count, Doc
from rdpfl_sim.components.registry import Facts, Registry
from rdpfl_sim.errors import OptionError
from rdpfl_sim.files import check_memory

Precision: TypeAlias = Literal["float32", "bfloat16"]
"""Number format of products and convolutions in training."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts(Facts):
    """Metadata of a model, set by its decorator."""

    channels_last: tuple[Precision, ...] = ("float32",)
    """The precisions in which `FlatModel` uses torch's channels_last layout: where benchmarks/layout.py finds
    it faster. The layout changes the last bits of results."""


MODELS = Registry("model", ModelFacts)
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


@model(channels_last=("float32", "bfloat16"))
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
    channels, height, width_px = _images(shape)
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


NUM_GROUPS = 8
"""Groups of channels in `resnet`. With 32, its 16 first channels would be normalised one by one."""


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with group normalisation, added to the input (He et al. 2016)."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(num_in, num_out, kernel_size=3, stride=stride, padding=1, bias=False),
            _group_norm(num_out, NUM_GROUPS),
            nn.ReLU(inplace=True),
            nn.Conv2d(num_out, num_out, kernel_size=3, padding=1, bias=False),
            _group_norm(num_out, NUM_GROUPS),
        )
        self.stride = stride
        self.shortcut = (
            nn.Identity()
            if (num_in, stride) == (num_out, 1)
            else nn.Sequential(
                nn.Conv2d(num_in, num_out, kernel_size=1, bias=False), _group_norm(num_out, NUM_GROUPS)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the layers and the shortcut."""
        # The same as a stride of the 1x1 convolution. There oneDNN writes past its buffers on AVX2 if the
        # input has few channels.
        skipped = x[:, :, :: self.stride, :: self.stride]
        return functional.relu(self.layers(x) + self.shortcut(skipped))


@model
def resnet(
    shape: Sequence[int],
    num_classes: int,
    *,
    depth: Annotated[Literal[8, 14, 20], Doc("number of layers with weights, 6 n + 2")] = 8,
    width: Annotated[
        Count, Ge(2), Doc("channels of the first stage; the others have two and four times as many")
    ] = 16,
) -> nn.Module:
    """Residual network for small images (He et al. 2016), with group normalisation.

    Three stages of n blocks; the second and the third halve the image. For 3x32x32 images and 10 classes, the
    model has 78,042 parameters with depth 8, and 272,474 with depth 20.
    """
    channels, _, _ = _images(shape)
    check_memory("width", 4 * 9 * 16 * width * (channels + (depth - 2) // 6 * 3 * width))
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=False),
        _group_norm(width, NUM_GROUPS),
        nn.ReLU(inplace=True),
    ]
    num_in = width
    for stage, num_out in enumerate((width, 2 * width, 4 * width)):
        for block in range((depth - 2) // 6):
            layers.append(ResidualBlock(num_in, num_out, stride=2 if stage > 0 and block == 0 else 1))
            num_in = num_out
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(num_in, num_classes))
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return module


@model(name="torchvision")
def torchvision_model(
    shape: Sequence[int],
    num_classes: int,
    *,
    model: Annotated[Literal["resnet18", "resnet34"], Doc("name of the model in torchvision")] = "resnet18",
) -> nn.Module:
    """Residual network of torchvision, adapted to small images and not pretrained.

    Group normalisation with 32 groups replaces batch normalisation. The first convolution is 3x3 with stride
    1, and the first pooling is left out, as is usual for images of 32x32 pixels.
    """
    from torchvision import models  # type: ignore[import-untyped]  # takes a second

    channels, _, _ = _images(shape)
    build: Callable[..., nn.Module] = {"resnet18": models.resnet18, "resnet34": models.resnet34}[model]
    module = build(weights=None, num_classes=num_classes, norm_layer=partial(_group_norm, num_groups=32))
    module.conv1 = nn.Conv2d(channels, 64, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(module.conv1.weight, mode="fan_out", nonlinearity="relu")
    module.maxpool = nn.Identity()
    return module


def _images(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return channels, height and width; raise an error if the data are not images."""
    if len(shape) != 3:
        raise OptionError(
            "", f"needs images [channels, height, width]; the data set's shape is {list(shape)}"
        )
    channels, height, width_px = shape
    return channels, height, width_px


def _group_norm(num_channels: int, num_groups: int) -> nn.GroupNorm:
    """Return group normalisation (Wu and He 2018) with at most this number of groups of equal size.

    A group has at least two channels, because torch refuses to normalise a single number.
    """
    sizes = (num for num in range(num_groups, 0, -1) if num_channels % num == 0 and num_channels >= 2 * num)
    return nn.GroupNorm(next(sizes), num_channels)


class FlatModel:
    """A module whose parameters are views of one float32 vector, and whose gradients are views of another.

    Loading weights is one copy, and a step of SGD is one addition. All clients share one FlatModel: load w,
    train, read `vector`. `build` returns a new module with its own initialisation.

    The vector contains the parameters in the order of `module.parameters()`, each in row-major order. With
    `channels_last`, convolution weights of shape (out, in, height, width) are stored in the order (out,
    height, width, in), torch's layout of this name, which float32 convolutions on a CPU use without
    conversion.

    The module must have no buffers, such as those of batch normalisation: the vector does not contain them.
    Dropout draws from a generator that `train` seeds; it is off otherwise.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        device: torch.device | str = "cpu",
        *,
        channels_last: bool = True,
    ) -> None:
        self.build = build
        self.channels_last = channels_last
        with seeded(0):  # these weights are not used
            module = build()
        buffers = [name for name, _ in module.named_buffers()]
        if buffers:
            raise ValueError(
                f"a model must have no state except its parameters; it has the buffers {', '.join(buffers)}; "
                "use nn.GroupNorm instead of batch normalisation"
            )
        self.generator = torch.Generator()
        """The source of dropout, which `training` seeds; on the CPU, as for batches."""
        self.module = _with_seeded_dropout(module, self.generator).to(device).eval()
        self.shapes = {name: p.shape for name, p in module.named_parameters()}
        self.num_parameters = sum(p.numel() for p in module.parameters())
        self.vector = self.flatten(module)
        self.gradient = torch.zeros_like(self.vector)
        start = 0
        for p in module.parameters():
            part = slice(start, start + p.numel())
            p.data = self.shaped(self.vector[part], p.shape)
            p.grad = self.shaped(self.gradient[part], p.shape)
            start = part.stop

    def __reduce__(self) -> tuple[Callable[..., FlatModel], tuple[object, ...]]:
        # Pickling does not preserve views, so a copy is built again.
        build = partial(FlatModel, channels_last=self.channels_last)
        return build, (self.build, self.vector.device)

    def on(self, device: torch.device) -> FlatModel:
        """Return a model with the same layers on a device."""
        return FlatModel(self.build, device, channels_last=self.channels_last)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of a batch."""
        if x.dim() == 4 and self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return cast(Tensor, self.module(x))

    def load(self, w: Tensor) -> None:
        """Copy `w` into the parameters."""
        self.vector.copy_(w)

    @property
    def has_dropout(self) -> bool:
        """Whether a layer draws random numbers in training."""
        return any(isinstance(layer, SeededDropout) for layer in self.module.modules())

    @contextmanager
    def training(self, seed: int) -> Iterator[None]:
        """Switch dropout on, drawing from this seed."""
        self.generator.manual_seed(seed)
        self.module.train()
        try:
            yield
        finally:
            self.module.eval()

    def initial(self, seed: int) -> Tensor:
        """Return a new vector with the model's own initialisation. It depends only on `seed`.

        Random numbers are drawn on the CPU, so that they are the same for every device.
        """
        with seeded(seed):
            module = self.build()
        return self.flatten(module).to(self.vector.device)

    def flatten(self, module: nn.Module) -> Tensor:
        """Return the parameters of a module as a new vector."""
        return torch.cat([self._flat(p.detach()) for p in module.parameters()])

    def _flat(self, p: Tensor) -> Tensor:
        return (p.permute(0, 2, 3, 1) if p.dim() == 4 and self.channels_last else p).reshape(-1)

    def shaped(self, flat: Tensor, shape: torch.Size) -> Tensor:
        """Return a view of the last dimension as a parameter of this shape."""
        if len(shape) != 4 or not self.channels_last:
            return flat.view(*flat.shape[:-1], *shape)
        num_out, num_in, height, width = shape
        return flat.view(*flat.shape[:-1], num_out, height, width, num_in).movedim(-1, -3)


class SeededDropout(nn.Module):
    """Dropout whose draws come from a generator; `per_channel` drops whole channels."""

    def __init__(self, probability: float, per_channel: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.probability = probability
        self.per_channel = per_channel
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """Return x, in training with entries or channels set to zero and the others scaled up."""
        if not self.training or self.probability == 0:
            return x
        keep = 1 - self.probability
        shape = x.shape[:2] + (1,) * (x.dim() - 2) if self.per_channel else x.shape
        kept = torch.rand(shape, generator=self.generator) < keep
        return x * kept.to(x.device, x.dtype) / keep if keep > 0 else x * 0.0


DROPOUT: Mapping[type[nn.Module], bool] = {
    nn.Dropout: False,
    nn.Dropout1d: True,
    nn.Dropout2d: True,
    nn.Dropout3d: True,
}
"""The layers that are replaced by `SeededDropout`, and whether they drop whole channels."""


def _with_seeded_dropout(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """Replace the dropout layers of a module, because torch's draw from a global generator."""
    if type(module) in DROPOUT:
        assert isinstance(module.p, float | int)
        return SeededDropout(module.p, DROPOUT[type(module)], generator)
    for name, child in module._modules.items():  # `named_children` leaves out repeated layers
        if child is not None:
            setattr(module, name, _with_seeded_dropout(child, generator))
    return module


_lock = RLock()
"""Torch has one process-wide flag for active modes, which concurrent threads would overwrite."""


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """Make torch's random functions draw from a new generator with this seed, in this thread; yield it.

    The draws are the same as after `torch.manual_seed(seed)`, but the global generator is neither read nor
    changed. A random function that accepts no generator raises a ValueError.
    """
    generator = torch.Generator().manual_seed(seed)
    with _lock, _PassGenerator(generator):
        yield generator


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
