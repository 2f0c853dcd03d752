"""Detect writes to the inputs of attacks, aggregators and methods.

Messages in flight and the states of clients share tensors. A write to one of them would change results that
other clients have yet to compute, depending on the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers with the size of an entry. Unlike floats, NaN included, they are equal if their bits are."""


class Inputs:
    """The tensors in the arguments of a component, and in the fields of objects among them.

    Torch's version counters detect writes by torch. With `bitwise`, copies also detect writes through numpy
    and `Tensor.data`.
    """

    def __init__(self, *arguments: object, bitwise: bool = False) -> None:
        self._tensors = [*tensors_in(arguments)]
        self._versions = _versions(self._tensors)
        self._copies = [_bits(tensor).clone() for tensor in self._tensors] if bitwise else []

    def are_modified(self) -> bool:
        """Return whether a tensor has been written to since this object was created."""
        if _versions(self._tensors) != self._versions:
            return True
        pairs = zip(self._tensors, self._copies, strict=False)  # there are no copies without `bitwise`
        return any(not torch.equal(_bits(tensor), copy) for tensor, copy in pairs)


def call_read_only(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of a component; raise an error if it writes to a tensor in its arguments."""
    inputs = Inputs(*arguments)
    result = function(*arguments, **options)
    assert not inputs.are_modified(), f"{function} modifies its arguments"
    return result


def tensors_in(arguments: Iterable[object]) -> Iterator[Tensor]:
    """Yield the tensors among some arguments, and in the fields of objects among them."""
    for argument in arguments:
        for value in (argument, *getattr(argument, "__dict__", {}).values()):
            if isinstance(value, Tensor):
                yield value


def _versions(tensors: list[Tensor]) -> list[int]:
    """Return the version counters. Inference tensors have none; torch itself protects them."""
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same type, shape and bits."""
    return first.dtype == second.dtype and torch.equal(_bits(first), _bits(second))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().view(BITS[tensor.element_size()])
