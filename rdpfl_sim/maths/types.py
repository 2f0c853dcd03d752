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
    whether no entry is NaN or infinite; every recipient asks.
    """

    __slots__ = ("form", "is_finite", "mask", "size_bytes", "vector")

    def __init__(self, vector: Tensor, mask: Tensor | None = None) -> None:
        self.vector = vector
        self.mask = mask
        self.form: Form = (vector.shape, vector.dtype)
        self.size_bytes = vector.nbytes
        self.is_finite = is_finite(vector)
        if mask is not None:
            self.form += (mask.shape, mask.dtype)
            num_sent = int(torch.count_nonzero(mask))
            self.size_bytes = num_sent * vector.element_size() + -(-mask.numel() // 8)


def is_finite(v: Tensor) -> bool:
    """Whether no entry is NaN or infinite."""
    # A finite sum of squares has finite terms, which is quicker to see; but huge terms overflow it.
    if v.dim() == 1 and v.is_floating_point() and isfinite(v.dot(v).item()):
        return True
    return bool(torch.isfinite(v).all())


@dataclass(slots=True)
class Received:
    """A message as a method sees it: who sent it, how many rounds old it is, how much it counts."""

    sender: int
    age: int
    weight: float
    vector: Tensor
    mask: Tensor | None = None


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
