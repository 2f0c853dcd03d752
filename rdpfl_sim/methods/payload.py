"""The content of a message, and checks that a recipient makes before it uses the message."""

from __future__ import annotations

from math import isfinite
from typing import TypeAlias

import torch
from torch import Tensor

Form: TypeAlias = tuple[torch.Size | torch.dtype, ...]
"""Shapes and data types of a payload."""


class Payload:
    """A flat vector, shared by all recipients of a broadcast.

    With a mask (bool, of the vector's shape) only the entries under the mask are transmitted, plus one bit
    per entry. A recipient checks `form` and `is_finite`. `squares_finite` implies `is_finite` and is cheaper
    to compute.
    """

    __slots__ = ("form", "is_finite", "mask", "size_bytes", "squares_finite", "vector")

    def __init__(self, vector: Tensor, mask: Tensor | None = None) -> None:
        self.vector = vector
        self.mask = mask
        self.form: Form = (vector.shape, vector.dtype)
        self.size_bytes = vector.nbytes
        self.squares_finite = squares_finite(vector)
        self.is_finite = self.squares_finite or is_finite(vector)
        if mask is not None:
            self.form += (mask.shape, mask.dtype)
            num_sent = int(torch.count_nonzero(mask))
            self.size_bytes = num_sent * vector.element_size() + -(-mask.numel() // 8)


def is_finite(v: Tensor) -> bool:
    """Return whether no entry is NaN or infinite."""
    return squares_finite(v) or bool(torch.isfinite(v).all())


def squares_finite(v: Tensor) -> bool:
    """Return whether v is a vector whose entries are finite and small enough that |v|^2 is finite too."""
    return v.dim() == 1 and v.is_floating_point() and isfinite(v.dot(v).item())
