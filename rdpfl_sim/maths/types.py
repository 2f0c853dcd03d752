"""The few types that methods, attacks and the simulated world share."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import torch
from torch import Tensor


class Payload:
    """What a message carries: one flat vector, shared by all recipients of a broadcast.

    `is_finite` says whether no entry is NaN or infinite; it is found out when somebody asks for it first.
    """

    __slots__ = ("form", "is_finite", "size_bytes", "vector")
    is_finite: bool

    def __init__(self, vector: Tensor) -> None:
        self.vector = vector
        self.form = (vector.shape, vector.dtype)
        self.size_bytes = vector.nbytes

    def __getattr__(self, name: str) -> bool:
        if name != "is_finite":
            raise AttributeError(name)
        v = self.vector
        # A finite sum of squares has finite terms, which is quicker to see; but huge terms overflow it.
        self.is_finite = (v.dim() == 1 and isfinite(v.dot(v).item())) or bool(torch.isfinite(v).all())
        return self.is_finite


@dataclass(slots=True)
class Received:
    """A message as a method sees it: who sent it, how many rounds old it is, how much it counts."""

    sender: int
    age: int
    weight: float
    vector: Tensor


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
