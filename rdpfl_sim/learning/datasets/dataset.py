"""Labelled data, stored in memory once. The shard of a client is a list of indices into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rdpfl_sim.components.registry import Facts, Registry

DATASETS = Registry("data", Facts)
data = DATASETS.register

Augmentation: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""A function that returns a random variant of each example in a batch, drawn from a CPU generator."""


@dataclass(frozen=True)
class Dataset:
    """Float32 images (N, C, H, W) or vectors (N, F) with int64 labels, for training and for testing."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    num_classes: int
    augment: Augmentation | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (C, H, W) or (F,)."""
        return tuple(self.x_train.shape[1:])


@dataclass(frozen=True)
class Shard:
    """The examples of a data set at `indices`. All shards share `x` and `y`, the tensors of the whole set."""

    x: Tensor
    y: Tensor
    indices: Tensor
    augment: Augmentation | None = None
    """Applied to every batch in training, never in evaluation."""

    def __len__(self) -> int:
        return self.indices.shape[0]

    @cached_property
    def indices_np(self) -> NDArray[np.int64]:
        """The indices as a numpy array."""
        return self.indices.cpu().numpy()

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return copies of the examples and labels at these positions in the shard."""
        chosen = self.indices.index_select(0, positions)
        return self.x.index_select(0, chosen), self.y.index_select(0, chosen)
