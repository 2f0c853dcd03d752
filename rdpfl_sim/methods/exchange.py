"""The few types that methods, attacks and the simulated world share."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

Form: TypeAlias = tuple[Any, ...]
"""Shapes and types of what a message carries."""


class Payload:
    """What a message carries: a flat vector, shared by all recipients of a broadcast.

    With a mask (bool, of the vector's shape) the sender has only the entries under it: they travel, and one
    bit for every entry. `form` is what a recipient can check without reading the values. `is_finite` says
    whether no entry is NaN or infinite, `is_moderate` whether the sum of their squares is finite too; every
    recipient asks.
    """

    __slots__ = ("form", "is_finite", "is_moderate", "mask", "size_bytes", "vector")

    def __init__(self, vector: Tensor, mask: Tensor | None = None) -> None:
        self.vector = vector
        self.mask = mask
        self.form: Form = (vector.shape, vector.dtype)
        self.size_bytes = vector.nbytes
        self.is_moderate = is_moderate(vector)
        self.is_finite = self.is_moderate or is_finite(vector)
        if mask is not None:
            self.form += (mask.shape, mask.dtype)
            num_sent = int(torch.count_nonzero(mask))
            self.size_bytes = num_sent * vector.element_size() + -(-mask.numel() // 8)


def is_finite(v: Tensor) -> bool:
    """Whether no entry is NaN or infinite."""
    return is_moderate(v) or bool(torch.isfinite(v).all())


def is_moderate(v: Tensor) -> bool:
    """Whether v is a vector of finite entries that are far from the largest number: the squares can be added.

    It is quicker to see than whether all entries are finite.
    """
    return v.dim() == 1 and v.is_floating_point() and isfinite(v.dot(v).item())


@dataclass(slots=True)
class Received:
    """A message as a method sees it: who sent it, how many rounds old it is, how much it counts."""

    sender: int
    age: int
    weight: float
    vector: Tensor
    mask: Tensor | None = None
    is_moderate: bool = False
    """Whether the vector is known to be moderate; see `Payload`."""


@dataclass(slots=True)
class Work:
    """What a client trains in a round: K steps of SGD from w, and what bends them.

    Entries outside the mask stay as they are. `momentum` stands in place of the scenario's. A `companion` is
    a second model that is trained on the same batches, with pull / 2 |v - w|^2 added to its loss.
    """

    w: Tensor
    mask: Tensor | None = None
    momentum: float | None = None
    companion: Tensor | None = None
    pull: float = 0.0


class Local(Protocol):
    """The outcome of a client's local training in one round."""

    @property
    def w_tilde(self) -> Tensor:
        """The locally optimised model w~."""

    @property
    def num_steps(self) -> int:
        """K, the number of SGD steps."""

    @property
    def loss(self) -> float:
        """Mean training loss over the K steps."""

    @property
    def companion(self) -> Tensor | None:
        """The second model, if there is one."""

    @property
    def direction(self) -> Tensor | None:
        """The mean gradient along the way, (w - w~) / (eta K), if it is known."""
