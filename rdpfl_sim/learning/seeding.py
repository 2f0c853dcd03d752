"""Make torch's random functions draw from a given generator.

Layers are initialised by functions that draw from torch's global generator, which all threads of the process
share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from threading import RLock

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

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
