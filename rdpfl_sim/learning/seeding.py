"""Random draws of torch's own functions from a generator that is given.

Layers initialise themselves with functions that draw from torch's global generator. It belongs to the whole
process: other threads draw from it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

_lock = RLock()
"""Torch notes for the whole process that a mode is active, and threads would restore each other's notes."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch's random functions draw from a new generator with this seed, in this thread, for a while.

    The draws are those of the global generator after `torch.manual_seed(seed)`, which is neither read nor
    changed. A random function that takes no generator raises a ValueError.
    """
    with _lock, _Drawing(torch.Generator().manual_seed(seed)):
        yield


class _Drawing(TorchDispatchMode):
    """Gives random functions a generator; torch calls it for every function, below autograd."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, which takes seconds, to keep it away from this class

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the function, with the generator if it draws and has none."""
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            func = _with_generator(func)
            is_given = len(args) > _argument_names(func).index("generator")
            if not is_given and given.get("generator") is None:
                given["generator"] = self.generator
        return func(*args, **given)


@cache
def _with_generator(func: OpOverload[..., Any]) -> OpOverload[..., Any]:
    """The overload of a random function that takes a generator."""
    names = {*_argument_names(func), "generator"}
    packet = func.overloadpacket
    overloads: list[OpOverload[..., Any]] = [getattr(packet, name) for name in packet.overloads()]
    for overload in (func, *overloads):
        if names == set(_argument_names(overload)):
            return overload
    raise ValueError(f"{packet} draws random numbers from torch's global generator, and takes no other one")


def _argument_names(func: OpOverload[..., Any]) -> list[str]:
    return [argument.name for argument in func._schema.arguments]
