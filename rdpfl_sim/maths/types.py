"""The few types that methods, attacks and the simulated world share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Payload:
    """What a message carries: one flat vector, shared by all recipients of a broadcast."""

    vector: Tensor

    @cached_property
    def size_bytes(self) -> int:
        """Bytes on the wire."""
        return self.vector.numel() * self.vector.element_size()

    @cached_property
    def is_finite(self) -> bool:
        """Whether no entry is NaN or infinite; computed once however many recipients ask."""
        return bool(torch.isfinite(self.vector).all())


@dataclass(frozen=True)
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
